//! The report as Markdown, for people.

use std::fmt::Write;

use asp_e2e::spread::{Spread, cell, percentile};

use crate::measurement::Phase;
use crate::plan::Part;
use crate::plugins;
use crate::report::Report;
use crate::rows::{MAIN, VARIANTS};
use crate::scale;
use crate::summary::Summary;

/// Where the filter's time goes: what one row has that the other has not.
const STEPS: [(&str, &str, &str); 7] = [
    ("a wasm VM that does nothing", "noop", "envoy"),
    (
        "the filter on headers alone, no token: header copy, path, Origin, limits, affinity",
        "filter-open-modern",
        "envoy-modern",
    ),
    (
        "the token, known: fingerprint, cache, times, audience, revocation",
        "filter-modern",
        "filter-open-modern",
    ),
    ("the legacy body: buffering, copy, scan", "filter", "filter-modern"),
    ("the legacy body without a token", "filter-open", "filter-open-modern"),
    ("the filter in all", "filter", "envoy"),
    ("the native chain in all", "native", "envoy"),
];

/// The whole report.
pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, report);
    if report.plan.measures(Part::Edge) {
        let _ = edge(&mut text, report);
    }
    if let Some(beside) = &report.beside {
        let _ = beside.render(&mut text);
    }
    if let Some(identity) = &report.identity {
        let _ = identity.render(&mut text);
    }
    if let Some(decisions) = &report.decisions {
        let _ = decisions.render(&mut text);
    }
    if let Some(changes) = &report.changes {
        let _ = changes.render(&mut text);
    }
    if let Some(plugins) = &report.plugins {
        let _ = plugins::render(&mut text, plugins);
    }
    if let Some(streams) = &report.streams {
        let _ = streams.render(&mut text);
    }
    if let Some(agents) = &report.agents {
        let _ = agents.render(&mut text);
    }
    if !report.scale.is_empty() {
        let _ = scale::render(&report.scale, &mut text);
    }
    if let Some(first_day) = &report.first_day {
        let _ = first_day.render(&mut text);
    }
    if let Some(comparison) = &report.comparison {
        let _ = comparison.render(&mut text);
    }
    text
}

fn edge(text: &mut String, report: &Report) -> std::fmt::Result {
    main_table(text, report)?;
    cold_table(text, report)?;
    variants(text, report)?;
    steps(text, report)?;
    enforcement(text, report)?;
    agreement(text, report)
}

fn head(text: &mut String, report: &Report) -> std::fmt::Result {
    let [start, end] = &report.machine;
    writeln!(text, "# Benchmark {}\n", report.time)?;
    writeln!(
        text,
        "{} CPUs ({}), kernel {}; load of the last minute {} at the start, {} at the end.",
        start.cpus, start.model, start.kernel, start.load, end.load
    )?;
    writeln!(
        text,
        "{} alternated runs. Every figure is the median over the runs (smallest..largest).",
        report.plan.runs
    )?;
    if report.plan.measures(Part::Edge) {
        writeln!(
            text,
            "{} connections, {} new tokens for each row and run; open loop {:.0}/s. Each turn begins with {} s that are \
             not measured. Errors: {}.",
            report.plan.connections,
            report.plan.tokens,
            report.rate,
            report.plan.settle.as_secs_f64(),
            report.summaries.iter().map(|summary| summary.errors).sum::<u64>()
        )?;
    }
    if report.plan.quick {
        writeln!(text, "\n**A quick run: it shows that every row works; its figures mean nothing.**")?;
    }
    writeln!(text, "\n## Goals\n\n| goal | | figures |\n|---|---|---|")?;
    for goal in &report.goals {
        let verdict = if goal.met { "met" } else { "missed" };
        writeln!(text, "| {} | **{verdict}** | {} |", goal.goal, goal.figures)?;
    }
    Ok(())
}

fn main_table(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\n## Warm, and saturated\n")?;
    writeln!(
        text,
        "Legacy `tools/call` of about 600 bytes, ES256 tokens seen before. Latency is that of the open loop, from \
         when a request was due. CPU is that of the whole Envoy process (or gateway) per request.\n"
    )?;
    writeln!(
        text,
        "| row | req/s saturated | p50 us | p99 us | Envoy CPU us | of `envoy` | of `native` | Envoy CPU us saturated \
         | gateway CPU us | Envoy RSS MiB | gateway RSS MiB |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    let reference = |row: &str| find(report, row, Phase::Warm).and_then(|summary| summary.envoy_cpu_us);
    for row in MAIN {
        let (Some(warm), Some(full)) = (find(report, row, Phase::Warm), find(report, row, Phase::Saturation))
        else {
            continue;
        };
        writeln!(
            text,
            "| `{row}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(full.requests_per_second, 0),
            cell(warm.p50_us, 0),
            cell(warm.p99_us, 0),
            cell(warm.envoy_cpu_us, 1),
            ratio(warm.envoy_cpu_us, reference("envoy")),
            ratio(warm.envoy_cpu_us, reference("native")),
            cell(full.envoy_cpu_us, 1),
            cell(warm.gateway_cpu_us, 1),
            cell(full.envoy_rss_mib, 0),
            cell(full.gateway_rss_mib, 0),
        )?;
    }
    Ok(())
}

fn cold_table(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\n## Cold: every token for the first time\n")?;
    latency_table(text, report, &MAIN, Phase::Cold)
}

fn variants(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\n## Variants, warm\n")?;
    writeln!(
        text,
        "`-modern`: 2026-07-28, the filter reads headers only. `-get`: no body. `-open`: a server that asks for no \
         token. `noop`: a wasm module without code. `-rs256`: RSA tokens of 2048 bits. Ratios are to the row of the \
         same kind of request where there is one, else to the main one.\n"
    )?;
    latency_table(text, report, &VARIANTS, Phase::Warm)?;
    writeln!(text, "\n## Variants, cold\n")?;
    latency_table(text, report, &VARIANTS, Phase::Cold)
}

fn latency_table(text: &mut String, report: &Report, rows: &[&str], phase: Phase) -> std::fmt::Result {
    writeln!(text, "| row | p50 us | p99 us | Envoy CPU us | of `envoy` | of `native` | gateway CPU us |")?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for row in rows {
        let Some(summary) = find(report, row, phase) else { continue };
        let reference = |base| like(report, row, base, phase).and_then(|summary| summary.envoy_cpu_us);
        writeln!(
            text,
            "| `{row}` | {} | {} | {} | {} | {} | {} |",
            cell(summary.p50_us, 0),
            cell(summary.p99_us, 0),
            cell(summary.envoy_cpu_us, 1),
            ratio(summary.envoy_cpu_us, reference("envoy")),
            ratio(summary.envoy_cpu_us, reference("native")),
            cell(summary.gateway_cpu_us, 1),
        )?;
    }
    Ok(())
}

/// Differences of medians; small ones drown in the spread of the two.
fn steps(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\n## Where the filter's time goes\n")?;
    writeln!(text, "Differences of the median Envoy CPU per request, in us.\n")?;
    writeln!(text, "| what | rows | warm | cold |\n|---|---|---|---|")?;
    for (what, with, without) in STEPS {
        let difference = |phase| {
            let cost = |row| find(report, row, phase).and_then(|summary| summary.envoy_cpu_us);
            cost(with)
                .zip(cost(without))
                .map_or("-".to_string(), |(with, without)| format!("{:+.1}", with.median - without.median))
        };
        writeln!(
            text,
            "| {what} | `{with}` - `{without}` | {} | {} |",
            difference(Phase::Warm),
            difference(Phase::Cold)
        )?;
    }
    Ok(())
}

fn enforcement(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\n## From the admin API's answer to enforcement\n")?;
    writeln!(
        text,
        "Milliseconds: to the first new answer, and to the last old one (then it holds on both workers).\n"
    )?;
    writeln!(text, "| change | seen | changes | first p50 | first p99 | last p50 | last p99 |")?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for kind in &report.enforcement {
        let of = |values: &[f64], share| {
            percentile(values, share).map_or("-".to_string(), |value| format!("{value:.1}"))
        };
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            kind.change,
            kind.seen,
            kind.first_ms.len(),
            of(&kind.first_ms, 0.5),
            of(&kind.first_ms, 0.99),
            of(&kind.last_ms, 0.5),
            of(&kind.last_ms, 0.99)
        )?;
    }
    Ok(())
}

fn agreement(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "\n## The same verdicts\n\n| request | `native` | `filter` |\n|---|---|---|")?;
    for case in &report.agreements {
        writeln!(text, "| {} | {} | {} |", case.case, case.native_status, case.filter_status)?;
    }
    Ok(())
}

fn find<'a>(report: &'a Report, row: &str, phase: Phase) -> Option<&'a Summary> {
    report.summaries.iter().find(|summary| summary.row == row && summary.phase == phase)
}

/// The row of `base` with the same kind of request (the part after the last dash), else `base` itself.
fn like<'a>(report: &'a Report, row: &str, base: &str, phase: Phase) -> Option<&'a Summary> {
    let kind = row.rsplit('-').next().unwrap_or_default();
    find(report, &format!("{base}-{kind}"), phase).or_else(|| find(report, base, phase))
}

fn ratio(value: Option<Spread>, reference: Option<Spread>) -> String {
    value
        .zip(reference)
        .map_or("-".to_string(), |(value, reference)| format!("{:.2}", value.median / reference.median))
}
