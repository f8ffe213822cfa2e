"""Sphinx's settings for the web site. scripts/docs calls it on a copy of these pages; see there."""

project = "hvdrun"
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
smartquotes = False  # two dashes are an option
html_theme = "furo"
html_title = "hvdrun"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style, pygments_dark_style = "tango", "monokai"
# Furo's own fonts are the system's; nothing comes from another host.
