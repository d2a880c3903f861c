"""Parts common to all pages: panels and tiles, tables as text, figures as inline SVG.

Part of the room `fedge.report`, with the same permitted imports.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "page": ["Page", "Panel", "PageSection", "Tile", "write_page"],
        "svg": ["figure_style", "new_figure"],
        "tables": ["table"],
    },
)
