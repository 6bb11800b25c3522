"""What a browser sees: the page, shells, and pages of programs."""

from typing import NamedTuple

from turnout.access import PageSessions
from turnout.service import Jobs
from turnout.web import BrowserAccess, BrowserLinks, Page, PageFiles, ProgramPages, ShellPages, home_text

from .base import Base


class Pages(NamedTuple):
    sessions: PageSessions
    page: Page
    shells: ShellPages
    program_pages: ProgramPages
    links: BrowserLinks


def make_pages(base: Base, jobs: Jobs) -> Pages:
    keys, settings = base.keys, base.settings
    sessions, files = PageSessions(keys), PageFiles()
    access = BrowserAccess(keys, settings.no_auth)
    program_pages = ProgramPages(jobs, access, settings.server.host, settings.tls_files)
    page = Page(keys, sessions, settings.no_auth, files, fallback=home_text)
    shells = ShellPages(jobs, access, files)
    return Pages(sessions, page, shells, program_pages, BrowserLinks(jobs, access, program_pages))
