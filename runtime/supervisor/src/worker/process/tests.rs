//! A machine for tests that start no worker.

use std::path::Path;

use asp_launcher::Bounds;

use super::*;
use crate::secrets::Secrets;
use crate::settings::Languages;

impl Machine {
    /// Returns a machine for tests that start no worker; plugins and state are in `root`.
    pub(crate) fn stand_in(root: &Path) -> Machine {
        let settings = Settings {
            plugins: root.to_path_buf(),
            state: root.to_path_buf(),
            socket: None,
            tls: None,
            worker_init: root.join("worker-init"),
            min_level: Level::L1,
            bounds: Bounds::Sampled,
            max_workers: 1,
            threads: 1,
            memory_budget: 1 << 30,
            queue: 1,
            uid_base: 1,
            egress_allow_private: Vec::new(),
            egress_development: false,
            development: false,
            secrets: Secrets::default(),
            languages: Languages { python: Some(root.join("python")), ..Languages::default() },
        };
        let aside = Handle::current();
        Machine {
            budget: WorkerBudget::new(settings.memory_budget, settings.max_workers),
            level: Level::L3,
            probe: Probe {
                level: Some(Level::L3),
                own_user: false,
                keeps_user: false,
                missing: Vec::new(),
                bounds: Bounds::Sampled,
                sees_workers: true,
                no_cgroup: None,
            },
            metrics: Metrics::default(),
            cgroups: None,
            sampler: Sampler::start(&aside),
            spawner: Spawner::start().unwrap(),
            aside,
            egress: egress::ProxyContext::default(),
            missing_secrets: Mutex::default(),
            _lock: File::create(root.join("lock")).unwrap(),
            settings,
        }
    }
}
