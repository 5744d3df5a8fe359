"""Cases of console-test.py: what operators do on pages (setting aside, deciding anew, editing, generations, statements, searches), and
texts that would be scripts if a page wrote them as they are.
"""

import os
import time
import urllib.parse

from console_lib import EVIL, FOLDER, URL, Visit, newest, picture, send, terrace, until
from page_cases import case


def work(browser):
    visit = Visit(browser)
    page = visit.sign_in()

    @case("a poison message is set aside with a reason in two clicks, the next one goes on, and it is on the to-do list")
    def _():
        page.goto(f"{URL}/operations/lab-out")
        head = page.locator("tbody a[href^='/messages/']").first.inner_text()
        page.get_by_text("Set the head aside").click()
        assert page.input_value("#message") == head
        page.fill("#reason", "the receiver rejects it, ticket 4711")
        page.get_by_role("button", name="Set aside").click()
        page.wait_for_selector("text=is set aside")
        assert page.locator("tbody a[href^='/messages/']").first.inner_text() != head
        page.get_by_role("link", name="what needs a person").click()
        page.wait_for_url("**/todo")
        row = page.locator("tbody tr", has_text="ticket 4711")
        assert "set aside" in row.inner_text(), row.inner_text()
        row.get_by_role("button", name=f"Take {head}").press("Enter")
        page.wait_for_selector("tbody tr:has-text('ticket 4711') td:has-text('ann')")
        row.get_by_text("Say", exact=True).first.click()
        row.get_by_label(f"Comment on message {head}").fill("they look into it")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=they look into it")
        picture(page, "todo-used")

    @case("what was set aside goes out again together: the preview counts, and the form sent again sends nothing twice")
    def _():
        page.goto(f"{URL}/messages?state=set-aside")
        page.get_by_role("link", name="Resend these").press("Enter")
        page.wait_for_selector("text=1 message goes")
        page.get_by_role("button", name="Resend 1").press("Enter")
        page.wait_for_selector("text=1 message went out again")
        page.reload()
        page.wait_for_selector("text=1 message went out again")
        again = terrace("message", "list", "--last", "0", "--json").strip().splitlines()
        assert sum("set-aside" in line for line in again) == 1, "one was set aside"

    @case("rules are mended on disk, loaded from the page with what differs, and what errored is decided anew")
    def _():
        with open(os.path.join(FOLDER, "production/tables/wards.csv"), "a", encoding="utf-8") as file:
            file.write("NOWHERE,Somewhere\n")
        page.goto(f"{URL}/changes")
        page.get_by_role("link", name="What is on disk now").press("Enter")
        page.wait_for_selector("text=+NOWHERE,Somewhere")
        picture(page, "changes-disk")
        page.get_by_role("button", name="Load the folder").press("Enter")
        page.wait_for_selector("text=Generation 2 is in force")
        page.goto(f"{URL}/todo")
        row = page.locator("tbody tr", has_text="to-laboratory.hl7t:2")
        row.get_by_role("link", name="Reprocess").press("Enter")
        page.wait_for_selector("text=This is what would become of it")
        assert "lab-out" in page.inner_text("main")
        page.get_by_role("button", name="Reprocess").press("Enter")
        page.wait_for_selector("text=It was decided anew")
        page.goto(f"{URL}/todo")
        assert "to-laboratory.hl7t:2" not in page.inner_text("main")

    @case("an earlier generation is loaded again after what would change was shown")
    def _():
        page.goto(f"{URL}/changes")
        page.get_by_role("link", name="Back to generation 1").press("Enter")
        page.wait_for_selector("text=-NOWHERE,Somewhere")
        page.get_by_role("button", name="Load generation 1").press("Enter")
        page.wait_for_selector("text=It is generation 3 now")
        assert "has other files" in page.inner_text("main")

    @case("a body is edited, previewed with what differs, and sent to the operation that was chosen")
    def _():
        page.goto(URL + newest(page, "q=control:MSG0000005"))
        page.get_by_role("link", name="Edit and resend").press("Enter")
        page.get_by_role("link", name="to registry").press("Enter")
        text = page.input_value("#text")
        page.fill("#text", text.replace("M\u00fcller", "M\u00fcller-L\u00fcdenscheidt"))
        page.get_by_role("button", name="Preview").press("Enter")
        page.wait_for_selector("ins:has-text('L\u00fcdenscheidt')")
        picture(page, "edit-preview")
        page.get_by_role("button", name="Send to registry").press("Enter")
        page.wait_for_selector("text=It went out again")
        assert "Edited from" in page.inner_text("main")

    @case("a statement runs by Ctrl+Enter with the visitor's rights, a change is refused, and rows are a file")
    def _():
        page.goto(f"{URL}/sql")
        page.fill("#text", "SELECT interface, count(*) AS messages FROM hl7.messages WHERE object = 0 GROUP BY 1 ORDER BY 1")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("td:has-text('adt-in')")
        picture(page, "sql-rows")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download CSV").press("Enter")
        with open(download.value.path(), encoding="utf-8") as file:
            assert file.read().startswith("interface,messages"), "the file has the rows"
        page.fill("#text", "CREATE TABLE mine (a int PRIMARY KEY)")
        page.get_by_role("button", name="Run").press("Enter")
        page.wait_for_selector("[role=alert]")
        page.fill("#text", "SELECT * FROM hl7.segments")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("text=permission denied")

    @case("a statement that goes on is ended when its page is left")
    def _():
        long = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"
        for _ in range(3):
            page.goto(f"{URL}/sql")
            page.fill("#text", long)
            page.get_by_role("button", name="Run").click(no_wait_after=True)
            time.sleep(0.5)

        def is_free():
            page.goto(f"{URL}/sql")
            page.fill("#text", "SELECT 1")
            with page.expect_navigation() as answer:
                page.get_by_role("button", name="Run").click()
            return answer.value.status == 200

        until("the statements have ended", is_free)

    @case("a search shows what matches, of indices that the visitor may read")
    def _():
        page.goto(f"{URL}/search")
        page.fill("#query", "chest AND laboratory")
        page.keyboard.press("Enter")
        page.wait_for_selector("mark:has-text('chest')")
        assert "1 hit" in page.inner_text("main"), page.inner_text("main")

    @case("a search of messages is saved under a name, is there again, and is forgotten")
    def _():
        page.goto(f"{URL}/messages?state=errored")
        page.get_by_text("Save this search").click()
        page.fill("#name", "errored ones")
        page.keyboard.press("Enter")
        page.wait_for_selector("button:has-text('Forget')")
        page.goto(f"{URL}/messages")
        page.get_by_role("link", name="errored ones").press("Enter")
        page.wait_for_url("**/messages?state=errored")
        page.get_by_role("button", name="Forget").press("Enter")
        page.wait_for_url("**/messages")
        assert page.get_by_role("link", name="errored ones").count() == 0

    @case("a list of messages is a file without bodies")
    def _():
        page.goto(f"{URL}/messages?service=lab-in")
        with page.expect_download() as download:
            page.get_by_role("link", name="CSV").click()
        with open(download.value.path(), encoding="utf-8") as file:
            text = file.read()
        assert "MSG0000100" in text and "M\u00fcller" not in text, text[:300]

    @case("no work of an operator asked another host for anything or broke the policy of contents")
    def _():
        visit.clean()

    visit.close()


def evil(browser):
    @case("texts that would be scripts are texts on every page: in messages, reasons, comments, names, statements, documents")
    def _():
        for number, text in enumerate(EVIL):
            hl7 = text.replace("&", "\\T\\").replace("|", "\\F\\").replace("^", "\\S\\")
            body = (
                f"MSH|^~\\&|{hl7}|NORTH|HUB|X|20260101120000||ADT^A01|{hl7}{number}|P|2.5\n"
                f"PID|1||{hl7}^^^NORTH^MR||{hl7}^Ann||19700101|F\nPV1|1|I|{hl7}\n"
            )
            send("adt-in", [body, body.replace("ADT^A01", "ZZZ^Z01").replace(f"{number}|P", f"{number}z|P")])
        visit = Visit(browser)
        page = visit.sign_in()
        page.goto(f"{URL}/messages")
        own = [link.get_attribute("href") for link in page.locator("tbody a[href^='/messages/']").all()[:4]]
        paths = ["/", "/messages", "/todo", "/audit", "/search?q=strange", "/reprocess?status=unmatched"]
        for target in own:
            paths += [target, f"{target}/resend", f"{target}/reprocess", f"{target}/edit?to=archive"]
        for text in EVIL:
            written = urllib.parse.quote(text)
            paths += [f"/search?q={written}&index={written}", f"/sql?text={written}", f"/messages?q={written}&state={written}"]
            paths += [f"/changes?from={written}&to={written}&loaded={written}", f"/todo?owner={written}&after=1"]
        for path in paths:
            page.goto(f"{URL}{path}")
            assert not page.evaluate("window.ran"), path
        for text in EVIL:
            page.goto(f"{URL}/sql")
            page.fill("#text", "SELECT '" + text.replace("'", "''") + "' AS \"" + text.replace('"', '""') + '"')
            page.keyboard.press("Control+Enter")
            page.wait_for_selector(".value")
            assert not page.evaluate("window.ran"), text
            assert page.locator(".value").inner_text().strip() == text, text
            page.goto(f"{URL}/messages?service={urllib.parse.quote(text)}")
            page.get_by_text("Save this search").click()
            page.fill("#name", text)
            page.keyboard.press("Enter")
            page.wait_for_selector("button:has-text('Forget')")
        page.goto(f"{URL}/messages")
        assert not page.evaluate("window.ran")
        visit.clean()
        visit.close()
