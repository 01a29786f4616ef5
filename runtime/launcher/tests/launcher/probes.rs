//! The probe of levels.

use asp_launcher::{Level, probe};

use crate::harness;

#[test]
fn this_machine_gives_every_level() {
    let scratch = harness::scratch();
    let probe = probe(harness::worker_init(), scratch.path());
    assert_eq!(probe.level, Some(Level::L3), "{:?}", probe.missing);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "the probe leaves nothing behind");
}
