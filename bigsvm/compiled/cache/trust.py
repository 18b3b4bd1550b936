"""Which files of compiled functions are trusted: they are unpickled and run.

A file is trusted if nobody but its owner can write it or its folder, and if their owner could change the program
anyway: the user, the owner of the installation, or root.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path


def why_not(found: os.stat_result, owners: Collection[int]) -> str:
    """Why a file or folder with this status is not trusted; '' if it is.  owners : users who are trusted, with root"""
    if found.st_uid not in owners and found.st_uid != 0:
        return f"it belongs to user {found.st_uid}"
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _alone_in_group(found)):
        return "others than its owner may write it"
    return ""


def why_not_folder(folder: Path, owners: Collection[int]) -> str:
    """Why a folder is not trusted; '' if it is."""
    try:
        found = os.stat(folder)
    except OSError as error:
        return str(error.strerror).lower()
    return why_not(found, owners) if stat.S_ISDIR(found.st_mode) else "it is not a folder"


def read_believed(path: Path, owners: Collection[int]) -> bytes | None:
    """The content of a regular file, if the file and its folder are trusted; else None."""
    if why_not_folder(path.parent, owners):
        return None
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(opened, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or why_not(found, owners):
            return None
        try:
            return file.read()
        except OSError:
            return None


def _alone_in_group(found: os.stat_result) -> bool:
    """Whether the group has no member but the owner: the private group that many systems give every user."""
    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return user.pw_gid == group.gr_gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}
