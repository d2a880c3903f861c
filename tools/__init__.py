"""Small tools of the project: what writes parts of its pages."""
