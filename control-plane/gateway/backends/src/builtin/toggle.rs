//! Built-in functions of the conformance suites that change a list: `test_trigger_tool_change` and
//! `test_trigger_prompt_change`.
//!
//! Each call hides a fixed item, or shows it again, as if it could not run here: for every caller, in lists and
//! calls. Refuses to touch any other primitive: these belong to the server `conformance`, which is served only in
//! development.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use asp_call::call::outcome::Output;
use asp_call::execution::Execution;

/// Ids of the items that the two functions hide.
const TOOL: &str = "test_toggled_tool";
const PROMPT: &str = "test_toggled_prompt";

/// Items that are currently hidden.
#[derive(Default)]
pub(super) struct Toggles {
    tool: AtomicBool,
    prompt: AtomicBool,
    changes: AtomicU64,
}

impl Toggles {
    pub(super) fn shows(&self, primitive: &str) -> bool {
        match primitive {
            TOOL => !self.tool.load(Ordering::Acquire),
            PROMPT => !self.prompt.load(Ordering::Acquire),
            _ => true,
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn tool(&self, execution: &Execution) -> Output {
        self.flip(&self.tool, execution)
    }

    pub(super) fn prompt(&self, execution: &Execution) -> Output {
        self.flip(&self.prompt, execution)
    }

    fn flip(&self, hidden: &AtomicBool, execution: &Execution) -> Output {
        let was_hidden = hidden.fetch_xor(true, Ordering::AcqRel);
        self.changes.fetch_add(1, Ordering::AcqRel);
        execution.platform.offers_changed();
        let text = if was_hidden { "It is listed again." } else { "It is no longer listed." };
        Output::text(text)
    }
}
