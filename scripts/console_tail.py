"""Cases of console-test.py: the page Tail, on which messages and outcomes show as they come."""

import time

from console_lib import EVIL, URL, Visit, axe, message, send, terrace
from page_cases import case


def live(page, state="live"):
    page.wait_for_selector(f".live[data-state={state}]")


def row(page, text):
    return page.locator("tbody tr", has_text=text)


def tail(browser):
    visit = Visit(browser)
    page = visit.sign_in()

    @case("the page Tail shows messages and outcomes of one service as they come, the newest on top, and leads to the message")
    def _():
        page.goto(f"{URL}/messages?service=adt-in")
        page.get_by_role("link", name="Tail", exact=True).press("Enter")
        page.wait_for_url("**/messages/tail?service=adt-in")
        live(page)
        page.wait_for_selector("tbody tr:has-text('from now on')")
        send("lab-in", [message(320, "ORU", "W7")])
        send("adt-in", [message(321, "ADT")])
        page.wait_for_selector("tbody tr:has-text('MSG0000321'):has-text('routed to archive, registry')")
        page.wait_for_selector("tbody tr:has-text('MSG0000321'):has-text('delivered archive after')")
        send("adt-in", [message(322, "ADT")])
        row(page, "MSG0000322").first.wait_for()
        text = page.inner_text("tbody")
        assert text.index("MSG0000322") < text.index("MSG0000321"), text
        assert "MSG0000320" not in text, text
        assert "terrace message tail --service adt-in" in page.inner_text("main")
        axe(page)
        row(page, "routed").first.get_by_role("link").press("Enter")
        page.wait_for_selector("text=Patient identifiers")

    @case("Tail pauses and goes on by keyboard: what is shown stays, and the focus with it")
    def _():
        page.goto(f"{URL}/messages/tail")
        live(page)
        send("adt-in", [message(330, "ADT")])
        row(page, "MSG0000330").first.wait_for()
        link = row(page, "MSG0000330").first.get_by_role("link")
        link.focus()
        send("adt-in", [message(331, "ADT")])
        row(page, "MSG0000331").first.wait_for()
        assert page.evaluate("document.activeElement.closest('tr').textContent").find("MSG0000330") > 0
        page.get_by_role("button", name="Pause").press("Enter")
        live(page, "paused")
        send("adt-in", [message(332, "ADT")])
        time.sleep(1)
        text = page.inner_text("tbody")
        assert "MSG0000332" not in text and "MSG0000330" in text, text
        page.get_by_role("button", name="Go on").press("Enter")
        live(page)
        send("adt-in", [message(333, "ADT")])
        row(page, "MSG0000333").first.wait_for()
        text = page.inner_text("tbody")
        assert "MSG0000332" not in text and text.count("from now on") == 2, text

    @case("Tail with bodies has their beginnings, and their reading is in the audit")
    def _():
        page.goto(f"{URL}/messages/tail?service=adt-in")
        page.get_by_label("With bodies").press("Space")
        page.get_by_role("button", name="Watch").press("Enter")
        page.wait_for_url("**bodies=yes")
        live(page)
        send("adt-in", [message(335, "ADT", "W7", "884713")])
        row(page, "884713^^^NORTH^MR||M\u00fcller^Ann").first.wait_for()
        assert "--service adt-in --bodies" in page.inner_text("main")
        assert "message.body" in terrace("audit", "list")

    @case("the fields of Tail choose an operation and a type by keyboard; one that is not there is named")
    def _():
        page.goto(f"{URL}/messages/tail")
        page.fill("#operation", "registry")
        page.fill("#type", "ADT")
        page.keyboard.press("Enter")
        page.wait_for_url("**/messages/tail?**operation=registry&type=ADT")
        live(page)
        send("lab-in", [message(340, "ORU", "W7")])
        send("adt-in", [message(341, "ADT")])
        page.wait_for_selector("tbody tr:has-text('MSG0000341'):has-text('delivered registry')")
        text = page.inner_text("tbody")
        assert "MSG0000340" not in text and "delivered archive" not in text, text
        page.goto(f"{URL}/messages/tail?operation=nowhere")
        page.wait_for_selector("tbody tr:has-text('It has ended'):has-text('nowhere')")
        live(page, "lost")
        assert page.get_by_role("button", name="Go on").count() == 1

    @case("Tail shows texts that would be scripts as texts, and no more than 500 rows")
    def _():
        page.goto(f"{URL}/messages/tail?service=adt-in")
        live(page)
        for number, text in enumerate(EVIL):
            hl7 = text.replace("&", "\\T\\").replace("|", "\\F\\").replace("^", "\\S\\")
            send("adt-in", [f"MSH|^~\\&|{hl7}|NORTH|HUB|X|20260101120000||ADT^A01|{hl7}t{number}|P|2.5\nPID|1||1^^^NORTH^MR\n"])
        page.wait_for_selector(f"tbody tr:has-text('t{len(EVIL) - 1}')")
        assert not page.evaluate("window.ran")
        for begin in range(1000, 1300, 50):
            send("adt-in", [message(number, "ADT") for number in range(begin, begin + 50)])
        page.wait_for_selector("tbody tr:has-text('MSG0001299')")
        assert page.locator("tbody tr").count() <= 500
        assert not page.evaluate("window.ran")

    @case("who sees no patient data watches without it, and a tail whose right ends says so and shows nothing more")
    def _():
        other = Visit(browser)
        seen = other.sign_in("masked")
        seen.goto(f"{URL}/messages/tail?service=adt-in")
        seen.get_by_label("With bodies").check()
        seen.keyboard.press("Enter")
        seen.wait_for_url("**/messages/tail?**bodies=yes")
        live(seen)
        send("adt-in", [message(350, "ADT", "W7", "884712")])
        row(seen, "PID|1|").first.wait_for()
        text = seen.inner_text("main")
        assert "masked" in text and "884712" not in text and "M\u00fcller" not in text, text
        terrace("role", "revoke", "message-metadata", "--on", "service *", "--from", "masked")
        seen.wait_for_selector("tbody tr:has-text('It has ended')")
        live(seen, "lost")
        send("adt-in", [message(351, "ADT")])
        time.sleep(1)
        assert "MSG0000351" not in seen.inner_text("tbody")
        terrace("role", "grant", "message-metadata", "--on", "service *", "--to", "masked")
        other.clean()
        other.close()

    @case("no tail asked another host for anything or broke the policy of contents")
    def _():
        visit.clean()

    visit.close()
