//! A store of artifacts that is slower than the plugin that sends one: the upload takes its time and succeeds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::{Options, Stack};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::message::modern;
use crate::plugin_wire::asp;
use crate::trial::{Shared, trials};

/// More than gateway and runtime hold between them: the plugin itself has to wait.
const BYTES: u64 = 24 << 20;
/// A disk whose every write of a blob takes 200 ms: loaded into `asp` before the C library's own.
const SLOW_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
ssize_t write(int fd, const void *bytes, size_t length) {
    static ssize_t (*own)(int, const void *, size_t);
    if (!own) own = dlsym(RTLD_NEXT, "write");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size > 5 && !memcmp(path + size - 5, ".blob", 5)) {
        struct timespec pause = {0, 200000000};
        nanosleep(&pause, NULL);
    }
    return own(fd, bytes, length);
}
"#;
const PLUGIN: &str = r#""""Leaves a large file behind."""

from dataclasses import dataclass

from asp_plugin import Context, plugin


@dataclass
class Input:
    name: str


@dataclass
class Output:
    greeting: str


@plugin.tool
async def run(args: Input, ctx: Context) -> Output:
    await ctx.artifact("large.bin", bytes(25165824))
    return Output(args.name)
"#;

trials! { plugins:
    slow_store_takes_an_upload_of_many_mebibytes_to_its_end,
}

async fn slow_store_takes_an_upload_of_many_mebibytes_to_its_end(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let primitives = directory.path().join("primitives");
    fs::create_dir(&primitives)?;
    asp(&["plugin", "new", "upload", "--language", "python"], &primitives).await?;
    let code = find(&primitives, "main.py").context("the new plugin has code")?;
    fs::write(code, PLUGIN)?;
    let disk = slow_disk(directory.path()).await?;
    let environment = vec![("LD_PRELOAD", disk.to_string_lossy().into_owned())];
    let stack =
        Stack::start(Options { primitives, plugins: true, environment, ..Options::repository()? }).await?;
    let arguments = json!({"name": "upload", "arguments": {"name": "Ada"}});
    let mut request = modern(&stack.alice().await?, "tools/call", arguments, &[("mcp-name", "upload")]);
    request.target = "/upload/mcp".into();
    let began = Instant::now();
    let answer = http1::send(stack.edge(), &request).await?.text();
    // A write has at most what waits, a mebibyte and a piece.
    ensure!(began.elapsed() >= Duration::from_secs(3), "the disk is not slow: {:?}", began.elapsed());
    let json =
        answer.lines().find_map(|line| line.strip_prefix("data: ").filter(|data| data.contains("result")));
    let answer: Value = serde_json::from_str(json.unwrap_or(&answer)).context(answer.clone())?;
    let content = answer["result"]["content"].as_array().with_context(|| answer.to_string())?;
    let link = content.iter().find(|block| block["type"] == "resource_link");
    let link = link.with_context(|| format!("it was kept: {answer}; {}", stack.asp.tail()))?;
    ensure!(link["size"] == BYTES, "{link}");
    let blob = find(stack.state.path(), ".blob").context("the store has it")?;
    ensure!(fs::metadata(blob)?.len() == BYTES);
    stack.stop(&[]).await
}

async fn slow_disk(directory: &Path) -> Result<PathBuf> {
    let source = directory.join("slow_disk.c");
    let library = directory.join("slow_disk.so");
    fs::write(&source, SLOW_DISK)?;
    // The linker that Rust needs is a C compiler.
    let mut command = Command::new("cc");
    let status =
        command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status().await?;
    ensure!(status.success(), "cc: {status}");
    Ok(library)
}

/// The first file below `directory` whose name ends so.
fn find(directory: &Path, end: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => find(&path, end),
            false => path.to_string_lossy().ends_with(end).then_some(path),
        }
    })
}
