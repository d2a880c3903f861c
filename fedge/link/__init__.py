"""Between machines: leaf servers and cloud over TLS, certificates and node keys for trials, nodes present.

The cloud listens (`gate`), leaf servers dial (`dial`), packets of JSON and model states pass (`frames`); what
they mean is said elsewhere.

Imports only from below: `privacy` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "certificates": ["CertificateRequest", "make_certificates"],
        "dial": ["Link"],
        "frames": ["LinkError", "Packet"],
        "gate": ["LeafGate", "LeafGone"],
    },
)
