"""Cases of the tests in a browser: each runs where it stands, and is counted."""

counts = {"passed": 0, "failed": 0}


def case(claim):
    """Runs a case at once, and counts it."""

    def run(work):
        try:
            work()
        except Exception as error:  # noqa: BLE001: any failure is the case's
            counts["failed"] += 1
            print(f"FAILED {claim}: {str(error)[:1500]}")
        else:
            counts["passed"] += 1
            print(f"passed {claim}")

    return run
