"""Reports: releases, their claims and their evidence as one page that a privacy officer can sign.

JSON is the document; HTML, PDF and Markdown are views of it. Nothing here is computed from private data.
"""

from discreet.report.files import document, write
from discreet.report.modelcard import card
from discreet.report.page import html
from discreet.report.paper import pdf
from discreet.report.prose import markdown

__all__ = ["card", "document", "html", "markdown", "pdf", "write"]
