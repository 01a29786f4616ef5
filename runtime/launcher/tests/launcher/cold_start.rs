//! Sandboxes one after the other, and their cost at the start of a worker compared with a plain start.

use std::process::{Command, Stdio};
use std::time::Instant;

use asp_launcher::{Cgroups, Level, command};
use nix::sys::resource::{UsageWho, getrusage};

use crate::harness::{Cell, worker_init};

/// Number of starts of each kind; use 200 for measurements.
const ROUNDS_VARIABLE: &str = "ASP_TEST_ROUNDS";
const ROUNDS: usize = 5;

/// Prints a table. The kinds alternate, so that noise of the machine affects them alike. The processor time is that of
/// all processes from start to end, and is hardly affected by noise.
#[test]
fn sandboxes_of_every_level_start_and_end_again_and_again() {
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |text| text.parse().unwrap());
    let cgroups = Cgroups::open().unwrap();
    let mut samples = [const { Vec::new() }; 4];
    let kinds = [None, Some(Level::L1), Some(Level::L2), Some(Level::L3)];
    let cells = kinds.map(|level| level.map(|level| Cell::new(level, &["/bin/true"], &[])));
    for round in 0..rounds {
        for (samples, cell) in samples.iter_mut().zip(&cells) {
            samples.push(match cell {
                None => timed(|| Command::new("/bin/true")),
                Some(cell) if cell.sandbox.level < Level::L3 => {
                    timed(|| command(worker_init(), &cell.sandbox, None).unwrap())
                }
                Some(cell) => {
                    // Its creation is part of a start; it is removed after the time is taken.
                    let mut group = None;
                    timed(|| {
                        let made = cgroups.create(&format!("w{round}"), &cell.sandbox.limits).unwrap();
                        command(worker_init(), &cell.sandbox, Some(group.insert(made))).unwrap()
                    })
                }
            });
        }
    }
    println!("{:<8}{:>10}{:>10}{:>14}", "", "p50 ms", "p95 ms", "mean CPU ms");
    for (name, samples) in ["plain", "level 1", "level 2", "level 3"].into_iter().zip(&mut samples) {
        samples.sort_by(|one, other| one.0.total_cmp(&other.0));
        let at = |share: usize| samples[samples.len() * share / 100].0;
        let cpu = samples.iter().map(|(_, cpu)| cpu).sum::<f64>() / samples.len() as f64;
        println!("{name:<8}{:>10.2}{:>10.2}{cpu:>14.2}", at(50), at(95));
        assert!(cpu > 0.0);
    }
}

/// Runs a command to its end; returns milliseconds of wall-clock and of processor time.
fn timed(prepare: impl FnOnce() -> Command) -> (f64, f64) {
    let begin = Instant::now();
    let used = children_ms();
    assert!(prepare().stdin(Stdio::null()).status().unwrap().success());
    (begin.elapsed().as_secs_f64() * 1000.0, children_ms() - used)
}

fn children_ms() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let ms = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1000.0 + time.tv_usec() as f64 / 1000.0;
    ms(usage.user_time()) + ms(usage.system_time())
}
