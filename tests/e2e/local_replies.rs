//! Envoy's own refusals speak the client's protocol (I-11), with the bytes that the edge's code gives.

use anyhow::Result;
use asp_e2e::tool;
use asp_edge::reason::Era;
use asp_edge::{Reason, refuse};
use libtest_mimic::Trial;

use crate::trial::Shared;

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("local_replies::bodies_in_the_bootstrap_are_those_of_the_edge", |_| async {
            same_bytes()
        }),
    ]
}

fn same_bytes() -> Result<()> {
    let bootstrap = std::fs::read_to_string(tool::root()?.join("envoy/bootstrap.yaml"))?;
    let mapped = [
        Reason::BodyTooLarge,
        Reason::UnknownServer,
        Reason::Deadline,
        Reason::InvalidRequest,
        Reason::UpstreamUnavailable,
    ];
    for reason in mapped {
        let body = String::from_utf8(refuse(reason, Era::Legacy, None).body)?;
        let line = format!("inline_string: '{body}'");
        assert!(bootstrap.contains(&line), "envoy/bootstrap.yaml lacks {line}");
    }
    Ok(())
}
