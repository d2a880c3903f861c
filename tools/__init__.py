"""Small tools of the project, some of which write parts of its pages."""
