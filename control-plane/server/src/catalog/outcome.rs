//! Compiles stored servers in parallel and keeps the outcomes.
//!
//! Keeps true: a server is compiled again if its sources change, or an issuer that it or its replacement form names;
//! other issuers do not concern it.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_registry::CompiledServer;
use asp_store::control::{PublishedForm, ServerRecord};
use parking_lot::Mutex;

use super::{Compiler, compile_stored, describe, form, servers};

/// Outcome of compiling a stored server at a revision of its sources.
pub(super) struct CompileOutcome {
    pub(super) revision: u64,
    /// Issuers that it and the forms considered as its replacement name, each with the value that was used; `None` if
    /// there was no such issuer.
    beside: BTreeMap<String, Option<String>>,
    /// The server as stored or, if that is faulty, as published last.
    pub(super) good: Option<Arc<CompiledServer>>,
    /// Revision of the record that `good` was compiled from; 0 if there is none.
    pub(super) good_at: u64,
    pub(super) fault: Option<String>,
    /// Whether the last published form was read from the store; only used if there is a fault.
    asked: bool,
    /// [`servers::server_bytes`] of `good`, cached so that one change does not measure a thousand servers.
    pub(super) bytes: usize,
}

impl CompileOutcome {
    /// Whether compiling the record with these issuers would give the same outcome.
    pub(super) fn is_of(&self, record: &ServerRecord, issuers: &BTreeMap<String, String>) -> bool {
        let is_same = |(name, said): (&String, &Option<String>)| issuers.get(name) == said.as_ref();
        self.revision == record.revision && self.beside.iter().all(is_same)
    }
}

/// A stored server that must be compiled.
pub(super) struct StaleServer<'r> {
    pub(super) record: &'r ServerRecord,
    /// Its last good form, with the revision of the record that it was compiled from.
    pub(super) before: Option<(u64, Arc<CompiledServer>)>,
}

/// Compiles servers on half of the machine's cores; the other half is left for serving.
pub(super) fn compile_stale<'r>(
    compiler: &Compiler,
    issuers: &BTreeMap<String, String>,
    stale: Vec<StaleServer<'r>>,
) -> Vec<(&'r ServerRecord, CompileOutcome)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores / 2).clamp(1, stale.len().max(1));
    let left = Mutex::new(stale.into_iter());
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = left.lock().next();
            let Some(StaleServer { record, before }) = next else { return done };
            done.push((record, compiler.compile_record(record, before, issuers)));
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    })
}

impl Compiler {
    fn compile_record(
        &self,
        record: &ServerRecord,
        before: Option<(u64, Arc<CompiledServer>)>,
        issuers: &BTreeMap<String, String>,
    ) -> CompileOutcome {
        let compiled = match &record.unreadable {
            Some(fault) => {
                Err(format!("this version cannot read it, a newer one may have written it: {fault}"))
            }
            None => compile_stored(record).map_err(|report| {
                let faults: Vec<String> = report.iter().map(describe).collect();
                format!("it does not compile: {}", faults.join("; "))
            }),
        };
        let of_new = compiled.iter().flat_map(|server| &server.edge.issuers);
        let of_old = before.iter().flat_map(|(_, server)| &server.edge.issuers);
        let beside = of_new.chain(of_old).map(|name| (name.clone(), issuers.get(name).cloned())).collect();
        let evaluated = compiled.and_then(|server| self.accepts(&server).map(|()| server));
        let revision = record.revision;
        let (good_at, good, fault) = match evaluated {
            Ok(mut server) => {
                server.server.updated_unix_ms = record.updated_at;
                (revision, Some(Arc::new(server)), None)
            }
            Err(fault) => {
                // The last form may name an issuer that no longer exists.
                let before = before.filter(|(_, server)| self.accepts(server).is_ok());
                let (good_at, good) = before.map_or((0, None), |(at, server)| (at, Some(server)));
                (good_at, good, Some(fault))
            }
        };
        let bytes = good.as_deref().map_or(0, servers::server_bytes);
        CompileOutcome { revision, beside, good, good_at, fault, asked: false, bytes }
    }

    /// Returns the servers that cannot be published as stored and whose last form was not read from the store yet.
    pub(super) fn unread_servers(&self) -> Vec<String> {
        let known = self.compiled.lock();
        let unasked = known.iter().filter(|(_, outcome)| outcome.fault.is_some() && !outcome.asked);
        unasked.map(|(name, _)| name.clone()).collect()
    }

    /// Takes the stored last form of a faulty server. The stored form counts whether or not it is accepted, so that all
    /// control planes serve the same; only a later form published by this process takes precedence.
    pub(super) fn take_form(&self, name: &str, form: Option<&PublishedForm>) {
        // Read before the form is evaluated: if an issuer changes during the evaluation, the server is compiled again.
        let issuers = self.trust().in_force().names();
        let said = form.and_then(form::server);
        let is_accepted = said.as_ref().is_some_and(|server| self.accepts(server).is_ok());
        let mut known = self.compiled.lock();
        let Some(outcome) = known.get_mut(name).filter(|outcome| outcome.fault.is_some()) else { return };
        outcome.asked = true;
        if let Some(form) = form.filter(|form| form.revision >= outcome.good_at) {
            for issuer in said.iter().flat_map(|server| &server.edge.issuers) {
                // An issuer that the server itself names keeps the value that the compilation used.
                let beside = outcome.beside.entry(issuer.clone());
                beside.or_insert_with(|| issuers.get(issuer).cloned());
            }
            let server = said.filter(|_| is_accepted);
            outcome.bytes = server.as_ref().map_or(0, servers::server_bytes);
            outcome.good_at = if server.is_some() { form.revision } else { 0 };
            outcome.good = server.map(Arc::new);
        }
        drop(known);
        // The cached settlement has the previous form.
        *self.last.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use asp_issuers::trust::{StaticIssuers, Trust};
    use asp_store::control::{ControlState, IssuerRecord, Side};

    use super::super::tests::{config, server};
    use super::*;
    use crate::catalog::{StaticConfig, compile};

    fn named(name: &str, issuer: &str) -> ServerRecord {
        let mut record = server(&format!("{{schemes: [jwt], issuers: [{issuer}]}}"));
        record.name = name.into();
        for file in &mut record.files {
            file.path = file.path.replace("demo/", &format!("{name}/"));
            file.text = file.text.replace("demo", name).replace("ping", &format!("{name}-ping"));
        }
        record
    }

    fn stored(name: &str, audiences: &[&str], revision: u64) -> IssuerRecord {
        let document = serde_json::json!({
            "iss": format!("https://{name}.example"), "orgs": ["acme"], "audiences": audiences
        });
        let document = document.to_string();
        IssuerRecord { side: Side::Clients, name: name.into(), document, revision, updated_at: 0 }
    }

    #[test]
    fn a_server_is_compiled_again_for_its_own_issuers_alone() {
        let trust = Trust::new(StaticIssuers::default());
        let compiler = Compiler::new(StaticConfig { trust: trust.clone(), ..config(true) });
        let take = |revision: u64, issuers: Vec<IssuerRecord>| {
            drop(trust.take(&ControlState { revision, issuers, ..ControlState::default() }, 0));
        };
        let records = [named("first", "one"), named("second", "two")];
        let settle = || {
            let mut servers = compiler.settle(&records).servers;
            servers.sort_by(|a, b| a.server.name.cmp(&b.server.name));
            servers
        };
        take(1, vec![stored("one", &[], 1), stored("two", &[], 1)]);
        let before = settle();
        let [first, second] = &before[..] else { panic!("both are accepted") };
        take(2, vec![stored("one", &["shop"], 2), stored("two", &[], 1), stored("three", &[], 2)]);
        let after = settle();
        let [changed, same] = &after[..] else { panic!("both are accepted") };
        assert!(!Arc::ptr_eq(first, changed), "its issuer lists another audience");
        assert!(Arc::ptr_eq(second, same), "none of its own is another one");
        take(3, vec![stored("two", &[], 1)]);
        let after = settle();
        let [left] = &after[..] else { panic!("the issuer of one is gone") };
        assert!(Arc::ptr_eq(second, left));
        take(4, vec![stored("two", &[], 1), stored("one", &[], 4)]);
        assert_eq!(settle().len(), 2, "it is back with its issuer");
    }

    #[test]
    fn a_form_of_the_store_goes_with_its_issuer_and_is_asked_for_again() {
        let trust = Trust::new(StaticIssuers::default());
        let compiler = Compiler::new(StaticConfig { trust: trust.clone(), ..config(true) });
        let take = |revision: u64, issuer: &str| {
            let issuers = vec![stored(issuer, &[], revision)];
            drop(trust.take(&ControlState { revision, issuers, ..ControlState::default() }, 0));
        };
        let mut record = named("first", "one");
        let kept = form::of_server(&compile("first", &record.files).unwrap(), 1);
        // It names no issuer of its own.
        record.revision = 2;
        record.files[1].text = "id: ping\n".into();
        let settled =
            || (compiler.settle(std::slice::from_ref(&record)).servers.len(), compiler.unread_servers());
        let unasked = vec!["first".to_owned()];
        take(1, "one");
        assert_eq!(settled(), (0, unasked.clone()));
        compiler.take_form("first", Some(&kept));
        assert_eq!(settled(), (1, Vec::new()));
        take(2, "two");
        assert_eq!(settled(), (0, unasked.clone()), "its issuer is gone");
        compiler.take_form("first", Some(&kept));
        assert_eq!(settled(), (0, Vec::new()), "it is not accepted");
        take(3, "one");
        assert_eq!(settled(), (0, unasked), "it may be accepted now");
        compiler.take_form("first", Some(&kept));
        assert_eq!(settled(), (1, Vec::new()));
    }

    #[test]
    fn many_servers_are_each_compiled_once() {
        let compiler = Compiler::new(config(true));
        let records: Vec<ServerRecord> = (0..40).map(|n| named(&format!("s{n}"), "dev")).collect();
        let stale = records.iter().map(|record| StaleServer { record, before: None }).collect();
        let issuers = compiler.trust().in_force().names();
        let done = compile_stale(&compiler, &issuers, stale);
        let mut names: Vec<&str> = done.iter().map(|(record, _)| record.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((done.len(), names.len()), (40, 40));
        assert!(
            done.iter().all(|(record, compiled)| compiled.good.is_some() && compiled.is_of(record, &issuers))
        );
    }
}
