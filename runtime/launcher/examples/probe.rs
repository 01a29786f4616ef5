//! `probe WORKER-INIT SCRATCH`: prints what the sandbox can use on this machine, for the user who runs it.

use std::path::PathBuf;

fn main() {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if let [worker_init, scratch] = paths.as_slice() {
        println!("{:?}", asp_launcher::probe(worker_init, scratch));
    }
}
