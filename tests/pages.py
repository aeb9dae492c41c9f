"""What tests of built pages and of live figures do in a browser."""

from pathlib import Path

from selenium.webdriver import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

# The theme scrolls smoothly; a press must not meet a page that is still moving.
STILL = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"

LIVE_FIGURES = Path(__file__).resolve().parents[1] / "book" / "_static" / "explorables"
FIGURES = ("landscape", "spins", "module", "map", "recall", "twelve")


def until(browser, condition):
    """Wait until `condition()` is true; return what it gives.

    The limit only ends a test that hangs: on a busy machine a picture may take seconds.
    """
    return WebDriverWait(browser, 120).until(lambda _: condition())


def wait_for(browser, script):
    """Wait until an expression of the page is true; return it."""
    return until(browser, lambda: browser.execute_script(f"return {script}"))


def press(browser, element, *places):
    """Press an element at a place, in pixels from its middle, and drag it by each further one.

    As quickly as a hand does.
    """
    browser.execute_script(STILL, element)
    first, *moves = places or ((0, 0),)
    hand = ActionChains(browser, duration=50).move_to_element_with_offset(element, *first)
    hand = hand.click_and_hold()
    for move in moves:
        hand = hand.move_by_offset(*move)
    hand.release().perform()


def words(browser, selector=".explorable-told"):
    """The text of an element; without a selector, the sentence of a live figure."""
    return browser.find_element("css selector", selector).get_attribute("textContent")
