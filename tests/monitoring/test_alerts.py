"""Each alert of docs/monitoring fires where its failure lasts, and not before, nor while all is well.

The samples have the form that the tests of the code provoke and compare: PROVOKED names these tests.
"""

import pathlib
import re
import unittest

import alerts

ROOT = pathlib.Path(__file__).resolve().parents[2]
GATEWAY = "control-plane/gateway"
# By alert: the test that provokes its metric at a process, with the metrics that the test reads.
PROVOKED = {
    "AspCallsFail": (
        f"{GATEWAY}/tests/it/proxy/failures.rs",
        "a_tools_error_is_counted_apart_from_a_success_and_from_a_failure_of_the_service",
        ("asp_calls_total",),
    ),
    "AspUpstreamFails": (
        f"{GATEWAY}/tests/it/proxy/failures.rs",
        "a_tools_error_is_counted_apart_from_a_success_and_from_a_failure_of_the_service",
        ("asp_calls_total",),
    ),
    "AspRevocationsLate": (
        f"{GATEWAY}/call/src/telemetry/metrics.rs",
        "the_age_of_the_snapshot_grows_until_an_up_to_date_control_plane_reports",
        ("asp_snapshot_age_seconds",),
    ),
    "AspChangesNotPublished": (
        "control-plane/server/src/admin/tests/publishing.rs",
        "what_an_older_version_stored_is_denied_and_named_and_the_rest_goes_on",
        ("asp_snapshot_standing_faults", "asp_snapshot_publish_failing"),
    ),
    "AspAuditIncomplete": (
        f"{GATEWAY}/tests/it/outage.rs",
        "an_audit_log_that_hangs_stops_what_has_effects_and_delays_what_reads",
        ("asp_audit_events_lost_total",),
    ),
    "AspPluginsUnavailable": (
        f"{GATEWAY}/tests/it/plugin/several.rs",
        "what_a_runtime_says_of_itself_keeps_calls_from_it",
        ("asp_worker_quarantined",),
    ),
}
EVERY = 30
MINUTE = 60
CALLS = 'asp_calls_total{{server="{}",primitive="echo",upstream="{}",outcome="{}"}} {}'
RUNTIME = 'asp_runtime_up{{languages="python",runtime="unix:/run/asp/api.sock"}} {}'
PLUGIN = '{}{{plugin="sweep@1.0.0",language="python",runtime="unix:/run/asp/api.sock"}} {}'


def calls(server, upstream, ok, failed):
    counts = {"ok": ok, "tool_error": 0, "failed": failed}
    return [CALLS.format(server, upstream, outcome, count) for outcome, count in counts.items()]


def well(seconds):
    """The samples of a platform without a failure, with a call each second for each server."""
    return [
        *calls("shop", "https://shop.example", seconds, 0),
        *calls("tickets", "https://tickets.example", seconds, 0),
        "asp_snapshot_age_seconds 1",
        "asp_snapshot_publish_failing 0",
        "asp_snapshot_refused_parts 0",
        'asp_snapshot_standing_faults{part="org"} 0',
        "asp_audit_events_lost_total 0",
        RUNTIME.format(1),
        PLUGIN.format("asp_worker_quarantined", 0),
        PLUGIN.format("asp_worker_breaker_open", 0),
    ]


def scrapes(minutes, failing=None):
    """Scrapes for a quarter of an hour without a failure, and then for some minutes with one."""
    start, end = 15 * MINUTE, (15 + minutes) * MINUTE
    found = []
    for time in range(0, end + 1, EVERY):
        lines = well(time)
        if failing is not None and time > start:
            changed = failing(time, time - start)
            names = {line.rsplit(" ", 1)[0] for line in changed}
            lines = [line for line in lines if line.rsplit(" ", 1)[0] not in names] + changed
        found.append((time, "\n".join(lines)))
    return found


def fired(minutes, failing=None):
    # Older scrapes than that are in no window.
    all_scrapes = scrapes(minutes, failing)
    return {rule.name for rule in alerts.rules() if alerts.firing(all_scrapes, rule)}


class Alerts(unittest.TestCase):
    def test_nothing_fires_while_all_is_well(self):
        self.assertEqual(fired(5), set())

    def test_a_share_of_failed_calls_pages_for_their_server(self):
        def failing(time, since):
            return calls("shop", "https://shop.example", time - since // 10, since // 10)

        self.assertEqual(fired(4, failing), set())
        self.assertEqual(fired(9, failing), {"AspCallsFail"})
        expression = next(rule.expression for rule in alerts.rules() if rule.name == "AspCallsFail")
        self.assertEqual(alerts.labels(alerts.evaluate(expression, scrapes(9, failing))), [{"server": "shop"}])

    def test_a_few_failed_calls_of_many_page_nobody(self):
        def failing(time, since):
            return calls("shop", "https://shop.example", time - since // 50, since // 50)

        self.assertEqual(fired(15, failing), set())

    def test_errors_that_a_tool_reports_itself_page_nobody(self):
        def failing(time, since):
            return [CALLS.format("shop", "https://shop.example", "tool_error", since)]

        self.assertEqual(fired(15, failing), set())

    def test_an_upstream_that_fails_pages_whichever_server_calls_it(self):
        def failing(time, since):
            return calls("shop", "https://shop.example", time - since, since)

        self.assertEqual(fired(15, failing), {"AspCallsFail", "AspUpstreamFails"})
        expression = next(rule.expression for rule in alerts.rules() if rule.name == "AspUpstreamFails")
        found = alerts.labels(alerts.evaluate(expression, scrapes(15, failing)))
        self.assertEqual(found, [{"upstream": "https://shop.example"}])

    def test_late_revocations_page(self):
        def failing(time, since):
            return [f"asp_snapshot_age_seconds {since}"]

        self.assertEqual(fired(1, failing), set())
        self.assertEqual(fired(2, failing), {"AspRevocationsLate"})

    def test_changes_that_are_not_published_page(self):
        for sample in (
            'asp_snapshot_standing_faults{part="org"} 1',
            "asp_snapshot_publish_failing 1",
            "asp_snapshot_refused_parts 2",
        ):
            self.assertEqual(fired(4, lambda time, since, sample=sample: [sample]), set(), sample)
            self.assertEqual(fired(6, lambda time, since, sample=sample: [sample]), {"AspChangesNotPublished"}, sample)

    def test_one_lost_event_of_the_audit_pages_at_once(self):
        self.assertEqual(fired(1, lambda time, since: ["asp_audit_events_lost_total 1"]), {"AspAuditIncomplete"})
        self.assertEqual(fired(12, lambda time, since: ["asp_audit_events_lost_total 1"]), set(), "it is ten minutes ago")

    def test_a_runtime_that_is_away_or_refuses_a_plugin_pages(self):
        for sample in (
            RUNTIME.format(0),
            PLUGIN.format("asp_worker_quarantined", 1),
            PLUGIN.format("asp_worker_breaker_open", 1),
        ):
            self.assertEqual(fired(2, lambda time, since, sample=sample: [sample]), set(), sample)
            self.assertEqual(fired(3, lambda time, since, sample=sample: [sample]), {"AspPluginsUnavailable"}, sample)

    def test_each_alert_is_tested_here_and_its_metric_is_provoked_by_a_test_of_the_code(self):
        rules = {rule.name: rule for rule in alerts.rules()}
        self.assertEqual(set(rules), set(PROVOKED))
        own = pathlib.Path(__file__).read_text(encoding="utf-8")
        for name, (file, test, metrics) in PROVOKED.items():
            self.assertIn(f'"{name}"}}', own, "no test expects it to fire")
            text = (ROOT / file).read_text(encoding="utf-8")
            begin = re.search(rf"fn {test}\b", text)
            self.assertIsNotNone(begin, f"{file} has no test {test}")
            body = text[begin.start():].split("\n    }\n" if "/src/" in file and "tests" not in file else "\n}\n")[0]
            for metric in metrics:
                self.assertIn(metric, rules[name].expression)
                self.assertIn(metric, body, f"{test} does not read it")


if __name__ == "__main__":
    unittest.main()
