"""Cases of the page of a plan, in a browser: sliders move marks, keys choose mixes, axe finds nothing in both schemes at 1280 and 390 pixels,
no text of a plan is markup, and no request leaves. Called by test-plan.sh: PROGRAM AXE FOLDER, and PICTURES in the environment for pictures.
"""

import json
import math
import os
import subprocess
import sys

from page_cases import case, counts
from playwright.sync_api import sync_playwright

PROGRAM, AXE, FOLDER = sys.argv[1:4]
PICTURES = os.environ.get("PICTURES")
GIB = 1 << 30
PRICE = {"ddr5": (13.83, 12.81, 14.84), "nvme-p4510": (0.25, 0.2, 0.4), "dcpmm100-128g": (5.47, 5.47, 7.03)}
EVIL = "</script><script>window.ran=1</script><img src=x onerror=window.ran=1><svg onload=window.ran=1> ${window.ran=1} https://example.com"

def part(medium, count, gb, uses, owned=0):
    usd = None
    if medium in PRICE:
        usd = dict(zip(("expected", "low", "high"), (one * gb * (count - owned) / count for one in PRICE[medium])))
    return {"medium": medium, "count": count, "gb": gb, "uses": uses, "owned": owned, "usd": usd}

def mix(name, parts, near, far, mode, p99, busy, meets, today=False, front=True):
    priced = [one["usd"] for one in parts if one["owned"] < one["count"]]
    usd = None if None in priced else {end: sum(one[end] for one in priced) for end in ("low", "expected", "high")}
    names = ["processors", "near memory", "far memory", "data", "journal"]
    stations = [{"name": n, "busy_s": b, "delay_s": d, "used": u} for n, (b, d, u) in zip(names, busy)]
    return {"name": name, "parts": parts, "is_today": today, "on_frontier": front, "meets_target": meets,
            "misses": [] if meets else ["99 of 100 commits take 1.90 ms, and may take 1.00 ms"], "usd": usd, "near_bytes": near * GIB,
            "far_bytes": far * GIB if far else None, "mode": mode, "served": {"near": 0.9, "far": 0.06 if far else 0.0, "device": 0.04 if far else 0.1},
            "p50_commit_s": p99 / 3, "p99_commit_s": p99, "mean_read_s": p99 / 40, "p99_read_s": p99 / 4, "p95_query_s": None,
            "rate_max": 9000.0 / (p99 * 1000 + 0.3), "binds": "processors" if far else "data", "spare": 0.3 + (0.1 if far else 0.0), "stations": stations,
            "wasted": [{"medium": parts[0]["medium"], "unit": "GiB", "bought": parts[0]["gb"] / 1.073741824, "used": near * 0.8},
                       {"medium": parts[-1]["medium"], "unit": "GB/s", "bought": 6.2, "used": 1.4}, {"medium": parts[-1]["medium"], "unit": "IOPS", "bought": 600000, "used": 41000}],
            "endurance": {"written_bytes_per_day": 3.3e12, "allowed_bytes_per_day": 8e12}, "settings": "[[tier]]\npath = \"/mnt/data\"\n", "commands": ["# no command is needed"]}

def plan(hostile=""):
    us = 1e-6
    mixes = [
        mix("8 x 16 GiB ddr5 + 1 x nvme-p4510", [part("ddr5", 8, 137, ["near"], 8), part("nvme-p4510", 1, 4000, ["data", "journal"], 1)], 112, 0, "dram", 1.9e-3,
            [(310 * us, 0, .5), (20 * us, 0, .1), (0, 0, 0), (160 * us, 900 * us, .8), (40 * us, 200 * us, .3)], False, today=True),
        mix("16 x 16 GiB ddr5 + 2 x nvme-p4510", [part("ddr5", 16, 275, ["near"], 8), part("nvme-p4510", 2, 8000, ["data", "journal"], 1)], 224, 0, "dram", 0.92e-3,
            [(310 * us, 0, .5), (22 * us, 0, .1), (0, 0, 0), (60 * us, 300 * us, .4), (40 * us, 190 * us, .2)], True),
        mix("8 x 16 GiB ddr5 + 4 x 128 GB dcpmm100-128g + 1 x nvme-p4510", [part("ddr5", 8, 137, ["near"], 8), part("dcpmm100-128g", 4, 512, ["far", "journal"]), part("nvme-p4510", 1, 4000, ["data"], 1)],
            112, 420, "app-direct", 0.41e-3, [(310 * us, 0, .5), (19 * us, 0, .1), (14 * us, 0, .2), (20 * us, 110 * us, .2), (4 * us, 0, .05)], True),
        mix("8 x 16 GiB ddr5 + 1 x cxl-cz120 + 1 x nvme-p4510", [part("ddr5", 8, 137, ["near"], 8), part("cxl-cz120", 1, 256, ["far"]), part("nvme-p4510", 1, 4000, ["data"], 1)],
            112, 230, "far", 0.63e-3, [(310 * us, 0, .5), (19 * us, 0, .1), (9 * us, 0, .1), (40 * us, 180 * us, .3), (40 * us, 190 * us, .2)], True, front=False),
        mix("24 x 64 GiB ddr5 + 4 x nvme-p4510", [part("ddr5", 24, 1649, ["near"], 0), part("nvme-p4510", 4, 16000, ["data", "journal"], 1)], 1340, 0, "dram", 0.39e-3,
            [(310 * us, 0, .5), (25 * us, 0, .1), (0, 0, 0), (4 * us, 20 * us, .1), (20 * us, 150 * us, .1)], True),
    ]
    points = [[int(2 ** p), 1 / (1 + (2 ** p / GIB / 9) ** 0.8)] for p in range(20, 41)]
    curve = lambda structure, shift, policy="lru", far=None: {"workload": "week.tprof", "structure": structure, "policy": policy, "far_bytes": far, "points": [[b, max(0.004, r - shift)] for b, r in points]}
    heat = [{"begin_s": h * 3600, "seconds": 3600, "reads": int(4e6 * (1.2 + math.sin((h - 8) / 24 * 6.283)) * (0.4 if h // 24 in (5, 6) else 1)), "writes": 400000} for h in range(168)]
    return {"version": "terrace 0.1.0" + hostile, "workloads": [{"name": "week.tprof" + hostile, "kind": "node", "seconds": 604800, "page_bytes": 8192, "touched_bytes": 412 * GIB,
              "hot_bytes": 71 * GIB, "accesses": 910000000, "worst_begin_s": 118800, "worst_accesses_per_s": 61000.0, "commits_per_s": 7800.0, "written_bytes_per_s": 38e6,
              "cpu_per_operation_s": 0.00031, "operation": "commit", "lacks": [], "heat": heat}],
            "target": {"p99_commit_s": 1e-3, "p99_read_s": None, "p95_query_s": None, "rate": 8000.0, "growth": 2.0, "budget_usd": None, "months": 36.0, "headroom": 0.15},
            "server": {"name": "2 sockets", "sockets": 2, "cores": 32, "dimm_slots": 32, "lanes": 128, "bays": 8, "has": []},
            "curves": [curve("all", 0), curve("message bodies", 0.12), curve("index", 0.22), curve("all", -0.01, "clock")], "mixes": mixes, "chosen": 1, "knee": 2, "answer": "buy",
            "says": "Buy 8 x 16 GiB ddr5 and 1 x nvme-p4510: 99 of 100 commits within 0.92 ms at 8,000/s" + hostile, "no_help": ["persistent memory for the journal: commits wait 0.31 of 0.41 ms for processors" + hostile],
            "flips": [{"medium": "ddr5", "factor": 1.47, "usd_per_gb": 20.33, "usd": 20.33, "unit": "USD/GB", "to": 2, "to_name": mixes[2]["name"]}],
            "break_even": [{"medium": "cxl-cz120", "usd_per_gb": 7.4, "mix": mixes[3]["name"]}],
            "sure": [{"what": "miss ratios", "error": "within 2 points in tests", "because": "a sample of 16,384 keys" + hostile}], "refused": [],
            "considered": {"mixes": 2144, "predicted": 611, "left_out": [["do not fit the server", 1533]]},
            "prices": [{"medium": m, "usd": dict(zip(("expected", "low", "high"), u)), "unit": "USD/GB", "dated": "2026-01", "source": "made up for a test" + hostile} for m, u in PRICE.items()]}


def made(name, report):
    source, out = (os.path.join(FOLDER, name + end) for end in (".json", ".html"))
    with open(source, "w", encoding="utf-8") as file:
        json.dump(report, file)
    done = subprocess.run([PROGRAM, "plan", "page", source, "--out", out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return "file://" + out


class Visit:
    """A page that notes what it should not have to."""

    def __init__(self, browser, address, width=1280, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.told, self.asked = [], []
        self.page.on("console", lambda message: self.told.append(message.text))
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        self.address = address

    def end(self):
        self.context.close()
        assert self.told == [], self.told
        assert self.asked == [self.address], self.asked


def at(page, number):
    """Where the mark of a mix is."""
    box = page.locator(f'#cost-chart [data-mix="{number}"]').bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def main(browser):
    plain = made("plain", plan())

    @case("sliders of prices move the marks, the list and the choice, and the button puts them back")
    def _():
        visit = Visit(browser, plain)
        page = visit.page
        assert page.locator("#verdict").inner_text().startswith("As planned: 2: ")
        before, beside = at(page, 4), at(page, 2)
        slider = page.locator('input[data-medium="ddr5"]')
        slider.focus()
        for _ in range(60):
            page.keyboard.press("ArrowRight")
        after = at(page, 4)
        assert after[0] > before[0] + 5, (before, after)
        assert abs(at(page, 2)[0] - beside[0]) < 60, "a mix without that medium moves with the axis only"
        verdict = page.locator("#verdict").inner_text()
        assert verdict.startswith("At these prices: 3: "), verdict
        assert "the choice" in page.locator("#mix-table tbody tr").nth(2).inner_text()
        # What had no price appears once it has one.
        assert page.locator('#cost-chart [data-mix="3"]').count() == 0
        page.locator('input[data-medium="cxl-cz120"]').focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        assert page.locator('#cost-chart [data-mix="3"]').count() == 1
        page.get_by_role("button", name="Prices as planned").click()
        assert abs(at(page, 4)[0] - before[0]) < 1 and page.locator('#cost-chart [data-mix="3"]').count() == 0
        assert page.locator("#verdict").inner_text().startswith("As planned: 2: ")
        visit.end()

    @case("keys choose a mix, by its mark and in the list, and the charts below show it")
    def _():
        visit = Visit(browser, plain)
        page = visit.page
        mark = page.locator('#cost-chart [data-mix="4"]')
        mark.focus()
        page.keyboard.press("Enter")
        assert page.locator("#mix-detail h3").inner_text().startswith("Mix 5: ")
        assert page.locator("#waste-lead").inner_text().startswith("Of mix 5")
        assert page.locator('input[name="mix"]:checked').get_attribute("value") == "4"
        assert page.evaluate("document.activeElement.getAttribute('data-mix')") == "4", "the focus stays"
        page.locator('input[name="mix"][value="4"]').focus()
        page.keyboard.press("ArrowUp")
        assert page.locator("#mix-detail h3").inner_text().startswith("Mix 4: ")
        assert page.evaluate("document.activeElement.value") == "3", "the focus stays"
        visit.end()

    @case("texts of a plan are never markup")
    def _():
        visit = Visit(browser, made("evil", plan(EVIL)))
        assert visit.page.evaluate("window.ran") is None
        assert EVIL in visit.page.locator("h1").inner_text()
        assert visit.page.locator("img").count() == 0
        visit.end()

    @case("a plan without prices, times, curves, heat, mixes or target is a page all the same")
    def _():
        bare = plan()
        bare |= {"mixes": [], "curves": [], "prices": [], "flips": [], "break_even": [], "workloads": [], "chosen": None, "knee": None, "answer": "no_target",
                 "refused": ["no commits are in the profile"]}
        visit = Visit(browser, made("bare", bare))
        assert "no commits are in the profile" in visit.page.locator("#remarks").inner_text()
        assert "no price that changes it" in visit.page.locator("#flips").inner_text()
        visit.end()
        without = dict.fromkeys(bare["target"]) | {"growth": 1.0, "months": 36.0, "headroom": 0.15}
        visit = Visit(browser, made("no-target", bare | {"target": without}))
        assert "no price was searched" in visit.page.locator("#flips").inner_text()
        visit.end()
        unpriced = plan()
        for one in unpriced["mixes"]:
            one["usd"] = None
            for piece in one["parts"]:
                piece["usd"], piece["owned"] = None, 0
        visit = Visit(browser, made("unpriced", unpriced | {"prices": [], "chosen": None, "answer": "nothing_meets_it"}))
        assert "prices" in visit.page.locator("#cost-chart").inner_text()
        visit.end()

    for scheme in ("light", "dark"):
        for width in (1280, 390):

            @case(f"{scheme}, {width} pixels: axe finds nothing, nothing is wider than the screen")
            def _(scheme=scheme, width=width):
                visit = Visit(browser, plain, width, scheme)
                page = visit.page
                for summary in page.locator("summary").all():
                    summary.click()
                if PICTURES:
                    page.screenshot(path=os.path.join(PICTURES, f"plan-{scheme}-{width}.png"), full_page=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                with open(AXE, encoding="utf-8") as file:
                    page.evaluate(file.read())
                found = page.evaluate("axe.run()")["violations"]
                assert found == [], [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found]
                visit.end()

    @case("on paper it is light, without sliders, and not wider than the page")
    def _():
        visit = Visit(browser, plain, 1280, "dark")
        page = visit.page
        page.emulate_media(media="print")
        assert not page.locator("#sliders").is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.pdf(format="A4").startswith(b"%PDF")
        visit.end()


with sync_playwright() as playwright:
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]
    chromium = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=arguments)
    main(chromium)
    chromium.close()
print(f"{counts['passed']} passed, {counts['failed']} failed")
sys.exit(1 if counts["failed"] else 0)
