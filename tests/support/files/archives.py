"""Zip archives that nobody would write."""

import copy
import zipfile


def sharing(stream, name, other):
    """An archive that has one more entry in its directory, for the bytes of a member that is there."""
    with zipfile.ZipFile(stream, "a") as made:
        again = copy.copy(made.getinfo(name))
        again.filename = again.orig_filename = other
        made.filelist.append(again)
        made.NameToInfo[other] = again
        made._didModify = True
    return stream
