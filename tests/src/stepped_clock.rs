//! A clock that one server has to itself and that a test steps, as an operator or a time service steps a machine's.
//!
//! Owns: a library that takes the place of the C library's functions for the time of day, and a file that says by how much they
//! differ from this machine's. Timers, and clocks that nobody sets, are as they were.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tokio::process::Command;

/// Environment variable with the path of the file.
const AHEAD: &str = "ASP_TEST_CLOCK_AHEAD";
/// The file is mapped once: every process of the server sees a change at once, and nothing is read when it asks for the time.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("ASP_TEST_CLOCK_AHEAD");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) ahead = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && ahead) now->tv_sec += *ahead;
    return failed;
}

static struct timespec stepped(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time = stepped();
    (void)zone;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    time_t seconds = stepped().tv_sec;
    if (now) *now = seconds;
    return seconds;
}
"#;

/// The clock of one server.
pub struct SteppedClock {
    library: PathBuf,
    ahead: PathBuf,
}

impl SteppedClock {
    /// Makes a clock that is right, with its files in this directory.
    pub async fn make(directory: &Path) -> Result<SteppedClock> {
        let source = directory.join("clock.c");
        let library = directory.join("clock.so");
        let ahead = directory.join("clock.ahead");
        fs::write(&source, LIBRARY)?;
        fs::write(&ahead, 0_i64.to_ne_bytes())?;
        // The linker that Rust needs is a C compiler.
        let mut command = Command::new("cc");
        let status = command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().await?;
        ensure!(status.success(), "cc: {status}");
        Ok(SteppedClock { library, ahead })
    }

    /// Environment of the server.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", self.library.as_path()), (AHEAD, self.ahead.as_path())]
    }

    /// Steps the clock: it is so many seconds ahead of this machine's then.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // Written in place: a file that is made shorter takes what processes have mapped away from them.
        let file = OpenOptions::new().write(true).open(&self.ahead)?;
        Ok(file.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }
}
