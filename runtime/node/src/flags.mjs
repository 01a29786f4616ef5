//! The command line of a worker, for the Node that runs it. `node src/flags.mjs` prints the flags of the Node at hand,
//! one a line, with `{plugin}` for the plugin's directory, as for a plugin with allowed domains; the tests start their workers with the same.
import { fileURLToPath } from 'node:url';

const SHIM = fileURLToPath(new URL('..', import.meta.url)).replace(/\/$/, '');

/**
 * Returns the flags that stand between `node` and `worker.mjs`, the heap's bound aside. The current directory is
 * the work directory. A permission flag stops no connection (the sandbox does), but files, children, addons.
 * @param version such as `22.21.0`
 * @param {{plugin: string, proxy?: boolean}} options the plugin's directory; whether it has allowed domains
 */
export function workerFlags(version, { plugin, proxy = false }) {
  const [major, minor] = version.split('.').map(Number);
  const since = (wantedMajor, wantedMinor) => major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
  const flags = ['--frozen-intrinsics', '--disable-proto=delete', '--no-addons', '--disable-warning=ExperimentalWarning'];
  // Node reads it at start and ends when it cannot: a sandbox has no /etc/ssl.
  flags.push('--openssl-config=/dev/null');
  if (since(22, 15)) {
    flags.push('--disable-sigusr1', '--permission');
  } else {
    // The hooks that provide @asp/plugin run in a thread there.
    flags.push('--experimental-permission', '--allow-worker', '--disable-warning=SecurityWarning');
  }
  // From 25 on the flag gates the network as well, the worker's own socket included.
  if (since(25, 0)) flags.push('--allow-net');
  flags.push(`--allow-fs-read=${SHIM}`, `--allow-fs-read=${plugin}`, '--allow-fs-read=.', '--allow-fs-write=.');
  if (proxy) flags.push('--disable-warning=UNDICI-EHPA');
  if (proxy && hasProxyFlag(major, minor)) flags.push('--use-env-proxy');
  // What the machine trusts, as the other languages do: an internal service has an authority of its own.
  if (proxy && (since(23, 8) || (major === 22 && minor >= 15))) flags.push('--use-system-ca');
  return flags;
}

/** 22.21 and 24.5 have it; 23 never got it. */
function hasProxyFlag(major, minor) {
  return (major === 22 && minor >= 21) || (major === 24 && minor >= 5) || major > 24;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const flags = workerFlags(process.versions.node, { plugin: '{plugin}', proxy: true });
  process.stdout.write(`${flags.join('\n')}\n`);
}
