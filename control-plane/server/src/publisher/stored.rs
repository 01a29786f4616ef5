//! Snapshots from the store.

use std::sync::Arc;

use anyhow::Context;
use asp_store::control::ControlStore;
use async_trait::async_trait;

use super::Source;
use crate::catalog::Compiler;
use crate::catalog::build::{self, Built};
use crate::catalog::usage::{Totals, Usage};
use crate::xds::Published;

/// Builds snapshots from the store.
pub struct StoreSource {
    store: Arc<dyn ControlStore>,
    compiler: Compiler,
    usage: Arc<Usage>,
}

impl StoreSource {
    /// The compiler is shared with the admin API, so that a server is compiled once; `usage` is what writes there are
    /// evaluated by, and follows what is read here.
    pub fn new(store: Arc<dyn ControlStore>, compiler: Compiler, usage: Arc<Usage>) -> StoreSource {
        StoreSource { store, compiler, usage }
    }
}

#[async_trait]
impl Source for StoreSource {
    async fn revision(&self) -> anyhow::Result<u64> {
        Ok(self.store.revision().await?)
    }

    async fn build(&self, last: Option<Arc<Published>>) -> anyhow::Result<Built> {
        let state = self.store.load().await?;
        let compiler = self.compiler.clone();
        // Compiling and encoding take milliseconds: not on a thread that serves.
        let usage = Arc::clone(&self.usage);
        let work = move || {
            // Whether or not it can be published: who may write how much depends on what is stored.
            usage.take(Totals::of(&state, &compiler.trusted()));
            build::build(&state, &compiler, last.as_deref().map(|last| &last.snapshot))
        };
        tokio::task::spawn_blocking(work).await.context("compile the snapshot")?
    }
}
