"""The cases of test-console.sh: the console of a node in chromium.

usage: console-test.py URL TERRACE FOLDER AXE SEARCH ISSUER    (FOLDER: settings and data of the node; PICTURES: where pictures go)

A case is a claim; the last line has the counts. What operators do beyond looking is in console_work.py, the page Tail in console_tail.py.
"""

import re
import time

import console_tail
import console_work
from console_lib import ARGS, FIRST_VISIT, ISSUER, URL, Visit, axe, newest, picture, prepare, send, message, terrace, until
from page_cases import case, counts
from playwright.sync_api import sync_playwright


def main():
    prepare()
    until("lab-out has tried", lambda: "lab-out" in terrace("status"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGS)
        first_visit(browser)
        flows(browser)
        pages(browser)
        console_work.work(browser)
        console_tail.tail(browser)
        console_work.evil(browser)
        without_script(browser)
        by_provider(browser)
        browser.close()
    print(f"{counts['passed']} passed, {counts['failed']} failed")


def first_visit(browser):
    @case("a first visit loads at most 150 KB, from this host alone, and breaks no policy")
    def _():
        visit = Visit(browser)
        session = visit.context.new_cdp_session(visit.page)
        session.send("Network.enable")
        sizes = []
        session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        visit.sign_in()
        visit.page.wait_for_selector(".chart canvas")
        assert sum(sizes) <= FIRST_VISIT, f"{sum(sizes)} bytes: {sizes}"
        print(f"  {sum(sizes)} bytes in {len(sizes)} responses")
        visit.clean()
        visit.close()

    @case("the page is live: what comes in shows within seconds, and a button keeps its focus meanwhile")
    def _():
        visit = Visit(browser)
        page = visit.sign_in()
        button = page.get_by_role("button", name="Suspend registry")
        button.focus()
        before = page.locator(".card:has-text('Messages in') .sub").inner_text()
        send("adt-in", [message(number, "ADT") for number in range(300, 305)])
        page.wait_for_function(
            "before => [...document.querySelectorAll('.card')].some(card => card.textContent.includes('Messages in') && card.querySelector('.sub').textContent !== before)",
            arg=before,
        )
        focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert focused == "Suspend registry", focused
        points = page.evaluate("document.querySelectorAll('.chart canvas').length")
        assert points == 1, points
        visit.clean()
        visit.close()


def flows(browser):
    visit = Visit(browser)
    page = visit.sign_in()

    @case("a patient's message: / and the number and Enter, then Enter")
    def _():
        page.goto(f"{URL}/")
        page.keyboard.press("/")
        page.keyboard.type("884711")
        page.keyboard.press("Enter")
        page.wait_for_url("**/messages?q=884711")
        page.wait_for_selector("text=1 found")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/messages/\d+$"))
        page.wait_for_selector("text=Patient identifiers")

    @case("a message shows why it went where, what each output changed, and its values decoded")
    def _():
        page.goto(URL + newest(page, "q=control:MSG0004711"))
        text = page.inner_text("main")
        for part in ["main: everything, admissions", "archive", "to-registry", "delivered", "M\u00fcller^Ann", "REGISTRY", "Receiving application"]:
            assert part in text, f"{part} is not in: {text}"

    @case("a message that errored says in which line of which file, and is on the list of what needs a person")
    def _():
        page.goto(f"{URL}/")
        link = page.locator("section:has-text('need a person') tbody a").first
        link.wait_for()
        page.goto(URL + newest(page, "state=errored"))
        assert "to-laboratory.hl7t:2" in page.inner_text("main"), page.inner_text("main")

    @case("an operation is suspended and resumed by keyboard, and the banner says so with its button")
    def _():
        page.goto(f"{URL}/operations/lab-out")
        page.get_by_role("button", name="Suspend lab-out").focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Resume lab-out").wait_for()
        page.goto(f"{URL}/")
        banner = page.locator(".banner").first
        assert "lab-out is suspended" in banner.inner_text(), banner.inner_text()
        assert "by ann" in banner.inner_text(), banner.inner_text()
        assert "MSG" not in banner.inner_text()
        banner.get_by_role("button", name="Resume lab-out").press("Enter")
        page.get_by_role("button", name="Suspend lab-out").wait_for()

    @case("what waits for a receiver that is down is shown with its age, from the first")
    def _():
        page.goto(f"{URL}/operations/lab-out")
        text = page.inner_text("main")
        assert "30" in text and "Head of the queue" in text, text
        assert page.locator("tbody tr").count() == 20

    @case("a resend shows what goes where; loading the answer again sends nothing")
    def _():
        target = newest(page, "q=control:MSG0004711")
        page.goto(f"{URL}{target}/resend")
        page.locator("input[value=registry]").uncheck()
        page.get_by_role("button", name="Send again").press("Enter")
        page.wait_for_selector("text=It went out again")
        page.reload()
        again = terrace("message", "list", "--control", "MSG0004711", "--last", "0", "--json").strip().splitlines()
        assert len(again) == 2, again

    @case("a changed transform is tried on stored messages, with a difference and the command")
    def _():
        page.goto(f"{URL}/try")
        page.get_by_role("link", name="to-registry").press("Enter")
        page.fill("#text", "set MSH-5 = \"OTHER\"\n")
        page.get_by_role("button", name="Try", exact=True).press("Enter")
        page.wait_for_selector("text=changed")
        text = page.inner_text("main")
        assert "OTHER" in text and "terrace transform try to-registry" in text, text

    @case("a command is copied")
    def _():
        page.goto(f"{URL}/operations/lab-out")
        page.locator(".command button").first.click()
        page.wait_for_selector("text=Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "terrace operation suspend lab-out"

    @case("chips, pages and the way back work without a number of a page")
    def _():
        page.goto(f"{URL}/messages")
        assert page.locator("tbody tr").count() == 50
        page.get_by_role("link", name="Older").press("Enter")
        page.wait_for_url("**before=**")
        page.get_by_role("link", name="failed", exact=True).press("Enter")
        page.wait_for_url("**state=failed**")
        page.go_back()
        page.wait_for_url("**before=**")

    @case("who sees no patient data sees it nowhere, and is told why")
    def _():
        target = newest(page, "q=control:MSG0004711")
        other = Visit(browser)
        seen = other.sign_in("masked")
        seen.goto(URL + target)
        text = seen.inner_text("main")
        assert "patient data is masked" in text and "M\u00fcller" not in text and "884711" not in text, text
        assert seen.get_by_role("button", name="Resend").count() == 0
        seen.goto(f"{URL}/messages?q=884711")
        assert "Not looked up among numbers of patients" in seen.inner_text("main")
        other.clean()
        other.close()

    @case("a profile is recorded by keyboard: started, curves by structure, what more memory gives, stopped")
    def _():
        page.goto(f"{URL}/plan")
        page.get_by_role("button", name="Start a recording").press("Enter")
        page.get_by_role("button", name="Stop the recording").wait_for()
        send("adt-in", [message(number, "ADT") for number in range(400, 440)])

        def has_curves():
            page.goto(f"{URL}/plan?more=1")
            return page.locator(".curves path.line").count() > 1 and "messages" in page.inner_text("main")

        until("there are curves of structures", has_curves)
        text = page.inner_text("main")
        for part in ["page cache", "1 GiB more:", "found instead of", "terrace profile stop --out day.tprof", "terrace plan --profile day.tprof"]:
            assert part in text, f"{part} is not in: {text}"
        page.get_by_role("button", name="Stop the recording").press("Enter")
        page.get_by_role("button", name="Start a recording").wait_for()
        text = page.inner_text("main")
        assert "complete" in text and "terrace profile fetch profile-" in text, text

    @case("signing out by keyboard ends the session")
    def _():
        page.goto(f"{URL}/")
        page.locator("details.who summary").press("Enter")
        page.get_by_role("button", name="Sign out").press("Enter")
        page.wait_for_url("**/sign-in")
        page.goto(f"{URL}/messages")
        assert "/sign-in" in page.url

    @case("no flow asked another host for anything or broke the policy of contents")
    def _():
        visit.clean()

    visit.close()


def by_provider(browser):
    visit = Visit(browser)
    visit.allowed = (URL, ISSUER)
    page = visit.page

    @case("somebody signs in at a provider of another site, has the rights of a group there, and signs out of both")
    def _():
        page.goto(f"{URL}/media")
        page.get_by_role("link", name="Sign in with the clinic").press("Enter")
        page.wait_for_url(f"{ISSUER}/authorize**")
        page.get_by_role("button", name="Continue as ben").press("Enter")
        page.wait_for_url(f"{URL}/media")
        page.goto(f"{URL}/account")
        page.get_by_role("heading", name="ben").wait_for()
        assert "<code>node-status</code>" in page.content()
        axe(page)
        page.locator("details.who summary").press("Enter")
        page.get_by_role("button", name="Sign out").press("Enter")
        out = page.get_by_role("link", name="Sign out at the clinic")
        out.wait_for()
        axe(page)
        out.press("Enter")
        page.wait_for_url(f"{ISSUER}/logout**")
        page.get_by_role("link", name="Back").press("Enter")
        page.wait_for_url(f"{URL}/sign-in")
        page.goto(f"{URL}/media")
        assert "/sign-in" in page.url
        visit.clean()

    @case("a callback that nobody began, or that was used, signs nobody in")
    def _():
        page.goto(f"{URL}/sign-in/oidc/callback?code=x&state=y")
        page.get_by_role("alert").wait_for()
        used = []
        page.on("request", lambda request: used.append(request.url) if "/callback" in request.url else None)
        page.get_by_role("link", name="Sign in with the clinic").click()
        page.get_by_role("button", name="Continue as ben").click()
        page.wait_for_url(f"{URL}/")
        page.context.clear_cookies()
        page.goto(used[-1])
        page.get_by_role("alert").wait_for()
        page.goto(f"{URL}/media")
        assert "/sign-in" in page.url
        visit.clean()

    visit.close()


def places(page):
    target = newest(page, "q=control:MSG0000110")
    errored = newest(page, "state=errored")
    return {
        "production": "/",
        "messages": "/messages",
        "found": "/messages?q=884711",
        "message": target,
        "errored": errored,
        "resend": f"{target}/resend",
        "operation": "/operations/lab-out",
        "edit": f"{target}/edit?to=archive",
        "reprocess": f"{errored}/reprocess",
        "reprocess-all": "/reprocess?status=errored",
        "resend-all": "/resend?state=delivered&service=lab-in",
        "tail": "/messages/tail?service=adt-in&bodies=yes",
        "todo": "/todo",
        "changes": "/changes?from=1&to=disk",
        "sql": "/sql?text=SELECT+1",
        "search": "/search?q=chest",
        "media": "/media",
        "plan": "/plan?more=64",
        "try": "/try?what=transform+to-registry",
        "volumes": "/volumes",
        "users": "/users",
        "audit": "/audit",
        "account": "/account",
    }


def pages(browser):
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            visit = Visit(browser, scheme, width)
            outside(visit, scheme, width)
            page = visit.sign_in()
            for name, path in places(page).items():
                look(visit, name, path, (scheme, width))
            visit.close()


def outside(visit, scheme, width):
    @case(f"the page sign-in, {scheme}, {width} pixels: axe finds nothing")
    def _():
        visit.page.goto(f"{URL}/sign-in")
        axe(visit.page)
        picture(visit.page, f"sign-in-{scheme}-{width}")
        visit.clean()


def look(visit, name, path, shape):
    scheme, width = shape

    @case(f"the page {name}, {scheme}, {width} pixels: axe finds nothing, nothing is wider than the screen")
    def _():
        page = visit.page
        page.goto(f"{URL}{path}")
        if name in ("production", "media"):
            page.wait_for_selector(".chart canvas")
            time.sleep(1.1)
        if name == "tail":
            page.wait_for_selector(".live[data-state=live]")
            send("adt-in", [message(310, "ADT")])
            page.wait_for_selector("tbody tr:has-text('MSG0000310')")
        axe(page)
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{wide} pixels too wide"
        picture(page, f"{name}-{scheme}-{width}")
        visit.clean()


def without_script(browser):
    @case("without a script every page is there, and an operation is suspended and resumed")
    def _():
        visit = Visit(browser, script=False)
        page = visit.sign_in()
        for path in places(page).values():
            response = page.goto(f"{URL}{path}")
            assert response.status == 200, f"{path}: {response.status}"
        page.goto(f"{URL}/operations/archive")
        page.get_by_role("button", name="Suspend archive").click()
        page.get_by_role("button", name="Resume archive").click()
        page.get_by_role("button", name="Suspend archive").wait_for()
        visit.close()


main()
