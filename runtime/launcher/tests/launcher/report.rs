//! Reports of a failed start to the supervisor, which a worker cannot forge.

use std::fs;

use asp_launcher::{EXIT_SETUP, Level, SetupFault, launch};

use crate::harness::{Cell, worker_init};

/// Runs the cell to its end; returns its exit code and the report.
fn reported(cell: &mut Cell) -> (Option<i32>, Option<SetupFault>) {
    // Creates the control group.
    drop(cell.command());
    let mut launch = launch(worker_init(), &cell.sandbox, cell.cgroup.as_ref()).unwrap();
    let code = launch.command.output().unwrap().status.code();
    (code, launch.report.fault())
}

#[test]
fn a_program_that_is_not_there_is_the_descriptions_fault() {
    for level in [Level::L1, Level::L2, Level::L3] {
        let (code, fault) = reported(&mut Cell::new(level, &["/usr/bin/no-such-program"], &[]));
        let fault = fault.unwrap();
        assert_eq!((code, fault.step.as_str(), fault.host), (Some(EXIT_SETUP), "exec", false), "{fault:?}");
    }
}

#[test]
fn a_directory_that_the_machine_lost_is_the_machines_fault() {
    for (level, step) in [(Level::L2, "work directory"), (Level::L3, "mounts")] {
        let mut cell = Cell::new(level, &["/bin/true"], &[]);
        fs::remove_dir(&cell.sandbox.work_dir).unwrap();
        let (code, fault) = reported(&mut cell);
        let fault = fault.unwrap();
        assert_eq!((code, fault.step.as_str(), fault.host), (Some(EXIT_SETUP), step, true), "{fault:?}");
    }
}

#[test]
fn a_worker_that_ends_like_a_failed_start_is_not_taken_for_one() {
    let forged = r#"echo '{"workerInit":"failed","step":"mounts","error":"x","host":true}' >&2
        for fd in 3 4 5 6 7 8 9; do echo '{"step":"mounts","error":"x","host":true}' >&$fd; done 2>/dev/null
        exit 71"#;
    for level in [Level::L1, Level::L2, Level::L3] {
        let (code, fault) = reported(&mut Cell::new(level, &["/bin/sh", "-c", forged], &[]));
        assert_eq!((code, fault), (Some(EXIT_SETUP), None));
    }
}
