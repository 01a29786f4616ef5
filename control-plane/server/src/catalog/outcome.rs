//! Stored servers as they compile, several at a time.
//!
//! Keeps true: a server is compiled again when its sources change, or an issuer that it names; other issuers do not concern it.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_registry::CompiledServer;
use asp_store::control::ServerRecord;
use parking_lot::Mutex;

use super::{Compiler, compile, describe, servers};

/// Outcome of compiling a stored server at a revision of its sources.
pub(super) struct Outcome {
    pub(super) revision: u64,
    /// The issuers that it, and the form before it, names, each with what it was evaluated by; `None`: there was no such issuer.
    beside: BTreeMap<String, Option<String>>,
    /// The server as it is stored or, where that is faulty, as it was before.
    pub(super) good: Option<Arc<CompiledServer>>,
    pub(super) fault: Option<String>,
    /// Bytes of `good` by [`servers::server_bytes`]: a thousand servers are not counted again for each change of one.
    pub(super) bytes: usize,
}

impl Outcome {
    /// Whether the record would compile to the same beside these issuers.
    pub(super) fn is_of(&self, record: &ServerRecord, issuers: &BTreeMap<String, String>) -> bool {
        let is_same = |(name, said): (&String, &Option<String>)| issuers.get(name) == said.as_ref();
        self.revision == record.revision && self.beside.iter().all(is_same)
    }
}

/// A stored server that is to be compiled.
pub(super) struct Stale<'r> {
    pub(super) record: &'r ServerRecord,
    /// Its last good form.
    pub(super) before: Option<Arc<CompiledServer>>,
}

/// Compiles them on half of the machine's cores: the others serve.
pub(super) fn anew<'r>(
    compiler: &Compiler,
    issuers: &BTreeMap<String, String>,
    stale: Vec<Stale<'r>>,
) -> Vec<(&'r ServerRecord, Outcome)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores / 2).clamp(1, stale.len().max(1));
    let left = Mutex::new(stale.into_iter());
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = left.lock().next();
            let Some(Stale { record, before }) = next else { return done };
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
        before: Option<Arc<CompiledServer>>,
        issuers: &BTreeMap<String, String>,
    ) -> Outcome {
        let compiled = match &record.unreadable {
            Some(fault) => {
                Err(format!("this version cannot read it, a newer one may have written it: {fault}"))
            }
            None => compile(&record.name, &record.files).map_err(|report| {
                let faults: Vec<String> = report.iter().map(describe).collect();
                format!("it does not compile: {}", faults.join("; "))
            }),
        };
        let of_new = compiled.iter().flat_map(|server| &server.edge.issuers);
        let of_old = before.iter().flat_map(|server| &server.edge.issuers);
        let beside = of_new.chain(of_old).map(|name| (name.clone(), issuers.get(name).cloned())).collect();
        let evaluated = compiled.and_then(|server| self.accepts(&server).map(|()| server));
        let revision = record.revision;
        match evaluated {
            Ok(mut server) => {
                server.server.updated_unix_ms = record.updated_at;
                let bytes = servers::server_bytes(&server);
                Outcome { revision, beside, good: Some(Arc::new(server)), fault: None, bytes }
            }
            Err(fault) => {
                // What it was may name an issuer that is gone.
                let good = before.filter(|server| self.accepts(server).is_ok());
                let bytes = good.as_deref().map_or(0, servers::server_bytes);
                Outcome { revision, beside, good, fault: Some(fault), bytes }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use asp_store::control::{ControlState, IssuerRecord, Side};

    use super::super::tests::{config, server};
    use super::*;
    use crate::catalog::StaticConfig;
    use crate::issuers::trust::{Given, Trust};

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
        let trust = Trust::new(Given::default());
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
    fn many_servers_are_each_compiled_once() {
        let compiler = Compiler::new(config(true));
        let records: Vec<ServerRecord> = (0..40).map(|n| named(&format!("s{n}"), "dev")).collect();
        let stale = records.iter().map(|record| Stale { record, before: None }).collect();
        let issuers = compiler.trust().in_force().names();
        let done = anew(&compiler, &issuers, stale);
        let mut names: Vec<&str> = done.iter().map(|(record, _)| record.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((done.len(), names.len()), (40, 40));
        assert!(
            done.iter().all(|(record, compiled)| compiled.good.is_some() && compiled.is_of(record, &issuers))
        );
    }
}
