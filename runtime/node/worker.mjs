//! The worker: reads its token and manifest, loads the plugin, serves the platform-plugin protocol on
//! ASP_WORKER_SOCKET (runtime/README.md) and goes when its session does.
//!
//! Command line, in the work directory, <heap> being three quarters of the memory limit in MiB (src/flags.mjs knows
//! what other releases than Node 22.21 to 24 need):
//!
//!   node --frozen-intrinsics --disable-proto=delete --no-addons --disable-warning=ExperimentalWarning
//!        --openssl-config=/dev/null --disable-sigusr1 --permission
//!        --allow-fs-read=<this directory> --allow-fs-read=<directory of plugin.json and package/>
//!        --allow-fs-read=. --allow-fs-write=. [--use-env-proxy: with allowed domains]
//!        --max-old-space-size=<heap> <this directory>/worker.mjs
import { LoadError } from './src/errors.mjs';
import { captureConsole, operatorLine, writeInStep } from './src/logs.mjs';
import { EXIT, guardExit, leave, leaveBy } from './src/process.mjs';
import { loadDefinitions } from './src/load.mjs';
import { readManifests } from './src/manifest.mjs';
import { Package } from './src/package.mjs';
import { readToken } from './src/token.mjs';
import { compileSchemas } from './src/schema.mjs';
import { routeThroughProxy } from './src/egress.mjs';
import { WorkerServer } from './src/serve/server.mjs';

guardExit();
writeInStep();
captureConsole();
try {
  const token = readToken();
  const server = new WorkerServer(await load(), token, (fault) => {
    if (fault) operatorLine('session fault', { fault });
    leave(fault ? EXIT.PROTOCOL : EXIT.OK);
  });
  process.on('SIGTERM', () => server.end());
  await server.listen(process.env.ASP_WORKER_SOCKET);
} catch (error) {
  const said = error instanceof LoadError || error instanceof SyntaxError ? error.message : String(error?.stack ?? error);
  operatorLine('the plugin could not be loaded', { error: said });
  if (error instanceof SyntaxError) leaveBy(error, EXIT.LOAD);
  else leave(EXIT.LOAD);
}

async function load() {
  await routeThroughProxy();
  const manifests = readManifests(process.env.ASP_PLUGIN_MANIFEST);
  const definitions = await loadDefinitions(manifests, process.env.ASP_PLUGIN_CODE);
  const workDirectory = process.env.ASP_WORK_DIR;
  const plugins = manifests.map((manifest, index) => {
    const definition = definitions[index];
    return { manifest, definition, schemas: compileSchemas(manifest, definition), workDirectory };
  });
  return new Package(plugins);
}
