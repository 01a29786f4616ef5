//! What a sandbox costs at the start of a worker, over a plain start of the same program.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use asp_launcher::{Cgroups, Level};

use crate::harness::{Cell, worker_init};

const ROUNDS: usize = 200;

/// Prints a table; the kinds take turns, so that noise of the machine meets them alike.
#[test]
#[ignore = "a measurement: cargo test -p asp-launcher --test launcher cold_start -- --ignored --nocapture"]
fn the_cost_of_a_sandbox_is_printed() {
    let cgroups = Cgroups::open().unwrap();
    let mut times = [const { Vec::new() }; 4];
    let kinds = [None, Some(Level::L1), Some(Level::L2), Some(Level::L3)];
    let cells: Vec<_> = kinds.map(|level| level.map(|level| Cell::new(level, &["/bin/true"], &[]))).into();
    for round in 0..ROUNDS {
        for (index, cell) in cells.iter().enumerate() {
            let begin = Instant::now();
            match cell {
                None => {
                    let mut command = Command::new("/bin/true");
                    assert!(command.stdin(Stdio::null()).status().unwrap().success());
                }
                Some(cell) => {
                    let limits = &cell.sandbox.limits;
                    let group = (cell.sandbox.level == Level::L3)
                        .then(|| cgroups.create(&format!("w{round}"), limits).unwrap());
                    let mut command =
                        asp_launcher::command(worker_init(), &cell.sandbox, group.as_ref()).unwrap();
                    assert!(command.stdin(Stdio::null()).status().unwrap().success());
                    // The removal of the group is not part of a start.
                    times[index].push(begin.elapsed());
                    continue;
                }
            }
            times[index].push(begin.elapsed());
        }
    }
    println!("{:<8}{:>10}{:>10}", "", "p50 ms", "p95 ms");
    for (name, times) in ["plain", "level 1", "level 2", "level 3"].into_iter().zip(&mut times) {
        times.sort();
        let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1000.0;
        println!("{name:<8}{:>10.2}{:>10.2}", at(50), at(95));
        assert!(times[0] > Duration::ZERO);
    }
}
