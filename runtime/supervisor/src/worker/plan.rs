//! Everything needed to start a worker of a plugin.

use std::sync::Arc;

use asp_proto::supervisor::LineProtocol;
use parking_lot::Mutex;

use crate::plugin::installed::Plugin;
use crate::plugin::language::Command;
use crate::plugin::manifest::Mode;
use crate::refusal::Refusal;
use crate::worker::rules::PackageRules;
use crate::worker::session::Executions;

#[derive(Debug)]
pub struct Plan {
    pub plugin: Arc<Plugin>,
    pub command: Command,
    pub rules: Arc<PackageRules>,
    pub executions: Executions,
    /// Protocol of a stdio server's processes that start from now on; empty until a gateway has stated one.
    lines: Mutex<Arc<LineProtocol>>,
}

impl Plan {
    pub fn new(plugin: Plugin, command: Command, rules: PackageRules) -> Plan {
        Plan {
            plugin: Arc::new(plugin),
            command,
            rules: Arc::new(rules),
            executions: Executions::default(),
            lines: Mutex::default(),
        }
    }

    pub(super) fn lines(&self) -> Arc<LineProtocol> {
        Arc::clone(&self.lines.lock())
    }

    /// Sets the protocol of a stdio server, which each request for its workers states; other plugins have none.
    pub fn set_lines(&self, stated: Option<LineProtocol>) -> Result<(), Refusal> {
        if self.plugin.manifest.mode != Mode::McpStdio {
            return Ok(());
        }
        let stated = stated.ok_or(Refusal::Outdated)?;
        let mut lines = self.lines.lock();
        if **lines != stated {
            *lines = Arc::new(stated);
        }
        Ok(())
    }
}
