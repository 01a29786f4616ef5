//! Tools of a conversation that a plugin names by their delegates, `{delegate: its_id}`.
//!
//! Owns: their definitions, which are those of the primitives that answer for the delegates. Keeps true: a primitive that
//! the caller's own list does not show is not offered to a model (I-10).

use std::sync::Arc;

use asp_call::execution::Execution;
use asp_proto::snapshot::{Kind, OtherPrimitive};
use asp_snapshot::ListedPrimitive;
use serde_json::{Value, json};

use crate::conversation::dependencies::dependency;
use crate::delegate::other_primitive;

/// Returns the conversation with the definitions of such tools, each under its delegate's id. `None` if the calling
/// primitive does not declare such a delegate, or if no primitive answers for it.
pub(super) fn with_definitions(execution: &Execution, conversation: &Value) -> Option<Value> {
    let mut conversation = conversation.clone();
    let Some(tools) = conversation.get_mut("tools").and_then(Value::as_array_mut) else {
        return Some(conversation);
    };
    let visible = execution.platform.visible(&execution.snapshot, &execution.call);
    let mut defined = Vec::with_capacity(tools.len());
    for tool in std::mem::take(tools) {
        let Some(id) = tool.get("delegate") else {
            defined.push(tool);
            continue;
        };
        let id = id.as_str()?;
        let other = other_primitive(dependency(execution, Kind::Delegate, id)?)?;
        defined.extend(visible_entry(execution, other, &visible).map(|entry| definition(id, entry)));
    }
    *tools = defined;
    Some(conversation)
}

/// Returns the primitive that answers, if the caller's own list shows it.
fn visible_entry<'a>(
    execution: &'a Execution,
    other: &OtherPrimitive,
    visible: &[bool],
) -> Option<&'a ListedPrimitive> {
    let server = &execution.call.server;
    let entry = server.tool_by_id(&other.id, other.major)?;
    let at = server.entries.iter().position(|listed| Arc::ptr_eq(listed, entry))?;
    (visible.get(at) == Some(&true)).then_some(&**entry)
}

fn definition(id: &str, entry: &ListedPrimitive) -> Value {
    let primitive = &entry.primitive;
    let schema: Value =
        serde_json::from_str(&primitive.input_schema).unwrap_or_else(|_| json!({"type": "object"}));
    json!({"name": id, "description": primitive.summary, "inputSchema": schema})
}
