"""Small tools of the project, among them those that write parts of its pages."""
