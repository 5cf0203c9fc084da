"""Headless Chromium on the dashboard: what a person would see, read from the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1280,900",
)  # fmt: skip

COUNT_POINTS = """
if (typeof charts === "undefined") return 0;
const counts = charts.flatMap((chart) => chart.lines.map((line, column) =>
  line.name === arguments[0] ? chart.table[column + 1].filter((value) => value !== null).length : 0));
return Math.max(0, ...counts);
"""


class Browser:
    def __init__(self, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))

    def open(self, url: str) -> None:
        self.driver.get(url)

    def forbid_reloads(self) -> None:
        """Mark the page; the mark is gone after a reload."""
        self.driver.execute_script("window.headraceMark = true")

    def wait_for_points(self, name: str, at_least: int, within_s: float = 240) -> None:
        """Wait until the page holds so many more points of a metric than when it was marked or opened."""
        start = self._n_points(name)
        self._wait(lambda: self._n_points(name) >= start + at_least, f"{at_least} more of {name}", within_s)

    def first_token(self) -> dict[str, str | None]:
        self._wait(lambda: bool(self.driver.find_elements(By.CSS_SELECTOR, "[data-logprob]")), "a token", 20)
        token = self.driver.find_element(By.CSS_SELECTOR, "[data-logprob]")
        names = {"logprob": "data-logprob", "token_id": "data-token-id", "version": "data-version"}
        return {key: token.get_attribute(attribute) for key, attribute in names.items()}

    def require_quiet_console(self) -> None:
        loud = [line for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]  # type: ignore[index]
        assert not loud, loud

    def close(self) -> None:
        self.driver.quit()

    def require_no_reload(self) -> None:
        assert self.driver.execute_script("return window.headraceMark === true"), "the page was reloaded"

    def _n_points(self, name: str) -> int:
        return self.driver.execute_script(COUNT_POINTS, name)

    def _wait(self, is_so: Callable[[], bool], what: str, within_s: float) -> None:
        WebDriverWait(self.driver, within_s, poll_frequency=0.3).until(
            lambda _: is_so(), f"the page never showed {what}"
        )
