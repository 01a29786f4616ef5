//! What is published, from the store.

use std::sync::Arc;

use anyhow::Context;
use asp_store::control::ControlStore;
use async_trait::async_trait;
use parking_lot::Mutex;

use super::Source;
use crate::catalog::Compiler;
use crate::catalog::build::{Builder, Built};
use crate::catalog::usage::Usage;

/// Builds from what changed in the store since it was built last.
pub struct StoreSource {
    store: Arc<dyn ControlStore>,
    compiler: Compiler,
    builder: Arc<Mutex<Builder>>,
    usage: Arc<Usage>,
}

impl StoreSource {
    /// The compiler is shared with the admin API, so that a server is compiled once; `usage` is what writes there are
    /// evaluated by, and follows what is read here.
    pub fn new(store: Arc<dyn ControlStore>, compiler: Compiler, usage: Arc<Usage>) -> StoreSource {
        let builder = Arc::new(Mutex::new(Builder::new(compiler.clone())));
        StoreSource { store, compiler, builder, usage }
    }
}

#[async_trait]
impl Source for StoreSource {
    async fn revision(&self) -> anyhow::Result<u64> {
        Ok(self.store.revision().await?)
    }

    async fn build(&self, raise: bool) -> anyhow::Result<Built> {
        let known = self.builder.lock().revision();
        let since = self.store.since(known).await?;
        let builder = Arc::clone(&self.builder);
        // Compiling and encoding take milliseconds: not on a thread that serves.
        let usage = Arc::clone(&self.usage);
        let work = move || {
            let mut builder = builder.lock();
            let built = builder.build(since, raise);
            // Whether or not it can be published: who may write how much depends on what is stored.
            usage.take(builder.totals());
            built
        };
        let built = tokio::task::spawn_blocking(work).await;
        if built.is_err() {
            // It has broken off in the midst of it: everything is read and built anew.
            *self.builder.lock() = Builder::new(self.compiler.clone());
        }
        built.context("build what is published")?
    }
}
