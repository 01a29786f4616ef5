//! Completions that clients offer for the arguments of a prompt and the variables of a template (MCP "Completion").
//!
//! Refuses lists for unknown arguments, and more values than a person looks through.

use std::collections::HashSet;

use super::name;
use crate::document::escape;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Completer, CompletionSource, Kind, Mode, Spec};
use crate::uri_template::UriTemplate;

/// Maximum number of values for one argument.
const MAX_VALUES: usize = 1000;
/// Maximum length of a value in bytes.
const MAX_VALUE: usize = 256;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    let Some(completions) = &spec.schema.completions else { return };
    let arguments = arguments(spec);
    for (argument, offered) in completions {
        let path = format!("/primitiveSchema/completions/{}", escape(argument));
        if !arguments.contains(argument.as_str()) {
            let message = format!("there is no argument `{}`", name::escape(argument));
            let hint = "name one of `arguments`, or a variable of `uriTemplate`";
            findings.add(FaultCode::BadValue, &path, message, hint);
        }
        let values = match offered {
            CompletionSource::Values(values) => values,
            CompletionSource::By(completer) => {
                check_completer(*completer, spec, &path, findings);
                continue;
            }
        };
        if values.len() > MAX_VALUES {
            let message = format!("{} values, at most {MAX_VALUES} are offered", values.len());
            findings.add(FaultCode::TooMany, &path, message, "offer those that are wanted most");
        }
        check_values(values, &path, findings);
    }
}

fn check_completer(completer: Completer, spec: &Spec, path: &str, findings: &mut Findings<'_>) {
    let runtime = spec.runtime.as_ref();
    let (can_be_asked, message, hint) = match completer {
        Completer::Plugin => (
            runtime.is_some_and(|runtime| runtime.mode == Mode::Plugin),
            "no plugin runs this, so no plugin can complete it",
            "list the values, or let a plugin run it (`runtime.mode: plugin`)",
        ),
        Completer::Upstream => (
            runtime.is_some_and(|runtime| runtime.mode == Mode::Proxy && runtime.mcp.is_some()),
            "no upstream MCP server is behind this that could complete it",
            "list the values, or name the server (`runtime.mcp`)",
        ),
    };
    if !can_be_asked {
        findings.add(FaultCode::BadValue, path, message, hint);
    }
}

fn check_values(values: &[String], path: &str, findings: &mut Findings<'_>) {
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate().take(MAX_VALUES) {
        let path = format!("{path}/{index}");
        if value.is_empty() || value.len() > MAX_VALUE {
            let message = format!("a value of {} bytes", value.len());
            findings.add(FaultCode::BadValue, &path, message, format!("write 1 to {MAX_VALUE} bytes"));
        }
        if !seen.insert(value) {
            let message = format!("the value `{}` occurs twice", name::escape(value));
            findings.add(FaultCode::DuplicateName, &path, message, "keep one of the two");
        }
    }
}

fn arguments(spec: &Spec) -> HashSet<String> {
    if spec.kind == Kind::Prompt {
        let arguments = spec.schema.arguments.iter().flatten();
        return arguments.map(|argument| argument.name.clone()).collect();
    }
    // An invalid template is reported elsewhere.
    let template =
        spec.schema.uri_template.as_deref().and_then(|text| UriTemplate::parse_matching(text).ok());
    template.iter().flat_map(UriTemplate::variables).map(str::to_owned).collect()
}
