//! The plugin runtime's part of the report as Markdown.

use std::fmt::Write;

use asp_e2e::spread::{cell, percentile};

use super::figures::{Language, Loop, Plugins, Way};
use super::process::Memory;
use super::{MANY, ONE};

/// The section.
pub(crate) fn render(text: &mut String, found: &Plugins) -> std::fmt::Result {
    writeln!(text, "\n## The plugin runtime\n")?;
    writeln!(
        text,
        "The same echo in each language, about 500 bytes each way, {} calls in each loop with {ONE} in flight and \
         {} with {MANY}, closed loops. `bare` is one Session with a worker that the bench started with the same \
         command line and no sandbox; `runtime` is a place, a tunnel and the place given back for each call, its worker in a sandbox of level {}. The two take turns; \
         what is added is the difference within a run.\n",
        found.calls, found.crowded_calls, found.isolation_level
    )?;
    writeln!(
        text,
        "| language | in flight | way | calls/s | p50 us | p99 us | added p50 us | added p99 us | of bare calls/s |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|")?;
    for language in &found.languages {
        for in_flight in [ONE, MANY] {
            for way in [Way::Bare, Way::Runtime] {
                loops(text, language, in_flight, way)?;
            }
        }
    }
    starts(text, found)?;
    memory(text, found)
}

fn loops(text: &mut String, found: &Language, in_flight: u32, way: Way) -> std::fmt::Result {
    let of = |figure: fn(&Loop) -> f64| cell(found.over_runs(way, in_flight, figure), 0);
    let added = |figure: fn(&Loop) -> f64| match way {
        Way::Bare => "-".to_owned(),
        Way::Runtime => cell(found.added(in_flight, figure), 0),
    };
    let (name, kept) = match way {
        Way::Bare => ("bare", "-".to_owned()),
        Way::Runtime => ("runtime", cell(found.kept(in_flight), 2)),
    };
    writeln!(
        text,
        "| {} | {in_flight} | `{name}` | {} | {} | {} | {} | {} | {kept} |",
        found.language,
        of(|one| one.calls_per_second),
        of(|one| one.p50_us),
        of(|one| one.p99_us),
        added(|one| one.p50_us),
        added(|one| one.p99_us),
    )
}

fn starts(text: &mut String, found: &Plugins) -> std::fmt::Result {
    writeln!(text, "\n### Cold starts\n")?;
    writeln!(
        text,
        "Milliseconds, {} of each. `ready` and `answer` count from the request for a fresh process; `bare answer` from \
         the start of a process without sandbox.\n",
        found.starts
    )?;
    writeln!(
        text,
        "| language | ready p50 | ready p95 | answer p50 | answer p95 | bare answer p50 | bare answer p95 |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for language in &found.languages {
        let of = |values: &[f64], share| {
            percentile(values, share).map_or("-".to_owned(), |value| format!("{value:.0}"))
        };
        let columns = [&language.cold_ready_ms, &language.cold_answer_ms, &language.cold_bare_ms];
        let cells = columns.map(|values| format!("{} | {}", of(values, 0.5), of(values, 0.95)));
        writeln!(text, "| {} | {} |", language.language, cells.join(" | "))?;
    }
    Ok(())
}

fn memory(text: &mut String, found: &Plugins) -> std::fmt::Result {
    writeln!(text, "\n### Memory of an idle worker, and warm hits\n")?;
    writeln!(
        text,
        "MiB of the runtime's worker, from its `smaps_rollup`: before its first call, and after the load. In PSS what \
         workers share counts in part.\n"
    )?;
    writeln!(
        text,
        "| language | RSS unused | PSS unused | RSS used | PSS used | calls that met a warm worker |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    for language in &found.languages {
        let of = |memory: Memory| format!("{} | {}", mib(memory.rss_kib), mib(memory.pss_kib));
        let (calls, warm) = language.warm_hits();
        writeln!(
            text,
            "| {} | {} | {} | {warm} of {calls} |",
            language.language,
            of(language.unused),
            of(language.used)
        )?;
    }
    Ok(())
}

fn mib(kib: u64) -> String {
    format!("{:.1}", kib as f64 / 1024.0)
}
