"""Links between machines: leaf servers and cloud over TLS, trial certificates, and keys of nodes.

The cloud listens (`gate`), leaf servers connect (`dial`), and packets of JSON and model states are exchanged
(`frames`); their meaning is defined elsewhere.

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
