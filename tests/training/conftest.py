import pytest
from markupsafe import Markup


@pytest.fixture(autouse=True)
def _reports_without_figures(monkeypatch):
    """Figures take most of the time of a short training; tests of the command line draw them."""
    monkeypatch.setattr("opteq.report.run_page.svg", lambda figure: Markup("<svg></svg>"))
