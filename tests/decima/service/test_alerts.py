"""The alert rules of Prometheus: each fires when it should, and only then, as ``promtool`` evaluates them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = Path(__file__).parents[3] / "docs" / "monitoring" / "decima-alerts.yml"
SCRAPED = 'job="decima", instance="a"'
#: Alert -> minute of the evaluation, labels of the alert, series at which it fires, and series at which it does not.
#: Values are one a minute, in the notation of promtool: ``0+3x9`` is 0, 3, .., 27; ``1x9`` is ten times 1.
CASES: dict[str, tuple[int, str, dict[str, str], dict[str, str]]] = {
    "DecimaServiceAbsent": (
        3,
        SCRAPED,
        {f"up{{{SCRAPED}}}": "1 0x9", 'up{job="decima", instance="b"}': "1x9"},
        {f"up{{{SCRAPED}}}": "1 0 1x9"},
    ),
    "DecimaPolicyFails": (
        9,
        SCRAPED,
        {f"decima_failed_decisions_total{{{SCRAPED}}}": "0x4 1x9"},
        {f"decima_failed_decisions_total{{{SCRAPED}}}": "7x20"},
    ),
    "DecimaAnswersLate": (
        25,
        'instance="a"',
        {
            f'decima_answer_seconds_bucket{{le="0.1", {SCRAPED}}}': "0+90x30",
            f'decima_answer_seconds_bucket{{le="0.2", {SCRAPED}}}': "0+100x30",
            f'decima_answer_seconds_bucket{{le="+Inf", {SCRAPED}}}': "0+100x30",
        },
        {
            f'decima_answer_seconds_bucket{{le="0.1", {SCRAPED}}}': "0+100x30",
            f'decima_answer_seconds_bucket{{le="+Inf", {SCRAPED}}}': "0+100x30",
        },
    ),
    "DecimaDriversMissAnswers": (
        10,
        'application="etl"',
        {
            f'decima_late_answers_total{{application="etl", {SCRAPED}}}': "0 0+1x9",
            f'decima_lost_answers_total{{application="etl", {SCRAPED}}}': "0x10",
        },
        {
            f'decima_late_answers_total{{application="etl", {SCRAPED}}}': "0 2x9",
            f'decima_lost_answers_total{{application="etl", {SCRAPED}}}': "0 2x9",
        },
    ),
    "DecimaDriverInOwnOrder": (
        25,
        'application="etl"',
        {f'decima_fallback_seconds_total{{application="etl", {SCRAPED}}}': "0+10x30"},
        {f'decima_fallback_seconds_total{{application="etl", {SCRAPED}}}': "0+5x30"},
    ),
    "DecimaSkipsQuestions": (
        25,
        'application="etl"',
        {f'decima_skipped_questions_total{{application="etl", {SCRAPED}}}': "0+11x30"},
        {f'decima_skipped_questions_total{{application="etl", {SCRAPED}}}': "0+9x30"},
    ),
    "DecimaRefusesDrivers": (
        10,
        SCRAPED,
        {f"decima_refused_total{{{SCRAPED}}}": "0+3x10"},
        {f"decima_refused_total{{{SCRAPED}}}": "0+1x10"},
    ),
    "DecimaReloadFailed": (
        2,
        SCRAPED,
        {f"decima_reload_ok{{{SCRAPED}}}": "1 0x9"},
        {f"decima_reload_ok{{{SCRAPED}}}": "0 1x9"},
    ),
    "DecimaPoliciesDiffer": (
        20,
        "",
        {f'decima_build_info{{policy_sha256="{digest}", instance="{digest}"}}': "1x20" for digest in "xy"},
        {f'decima_build_info{{policy_sha256="x", instance="{instance}"}}': "1x20" for instance in "ab"},
    ),
    "DecimaCertificateEnds": (
        1,
        SCRAPED,
        {f"decima_certificate_expiry_timestamp_seconds{{{SCRAPED}}}": f"{13 * 86400}x9"},
        {f"decima_certificate_expiry_timestamp_seconds{{{SCRAPED}}}": f"{15 * 86400}x9"},
    ),
    "DecimaLogNotWritten": (
        4,
        SCRAPED,
        {f"decima_log_ok{{{SCRAPED}}}": "1 0x9"},
        {f"decima_log_ok{{{SCRAPED}}}": "1 0 0 1x9"},
    ),
    "DecimaAnswersNothing": (
        25,
        SCRAPED,
        {f"decima_jobs{{{SCRAPED}}}": "3x30", f"decima_questions_total{{{SCRAPED}}}": "9x30"},
        {f"decima_jobs{{{SCRAPED}}}": "3x30", f"decima_questions_total{{{SCRAPED}}}": "0+1x30"},
    ),
    "DecimaTenantWaits": (
        20,
        'tenant="bi"',
        {
            f'decima_tenant_pending_tasks{{tenant="bi", {SCRAPED}}}': "9x30",
            f'decima_tenant_slots{{tenant="bi", {SCRAPED}}}': "0x30",
        },
        {
            f'decima_tenant_pending_tasks{{tenant="bi", {SCRAPED}}}': "9x30",
            f'decima_tenant_slots{{tenant="bi", {SCRAPED}}}': "1x30",
        },
    ),
}


def rules() -> dict[str, Any]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == set(rules())


def unit_test(alert: str, minute: int, series: dict[str, str], labels: str | None) -> dict[str, Any]:
    """Return a unit test of promtool; ``labels``: those of the alert besides its severity, None if it must not fire."""
    rule = rules()[alert]
    expected = dict(pair.split("=") for pair in (labels or "").replace('"', "").split(", ") if pair) | rule["labels"]
    fired = {"exp_labels": expected, "exp_annotations": rule["annotations"]}
    at = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": [] if labels is None else [fired]}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [at],
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, a part of Prometheus")
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    tests = [unit_test("DecimaServiceAbsent", 5, {'up{job="other"}': "1x9"}, "")]  # it was never there
    for alert, (minute, labels, firing, quiet) in CASES.items():
        tests += [unit_test(alert, minute, firing, labels), unit_test(alert, minute, quiet, None)]
    file = tmp_path / "alerts-test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
