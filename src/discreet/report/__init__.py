"""Reports: releases, their claims and their evidence as one page that a privacy officer can sign.

JSON is the document; HTML, PDF and Markdown are views of it. Nothing here is computed from private data.
"""

from discreet.report.files import document, write
from discreet.report.markdown import markdown
from discreet.report.modelcard import card
from discreet.report.page import Parts, html, parts
from discreet.report.pdf import pdf

__all__ = ["Parts", "card", "document", "html", "markdown", "parts", "pdf", "write"]
