//! The primitives that a worker serves, each a plugin `{manifest, definition, schemas, workDirectory}`.
import { STATUS } from './wire/grpc.mjs';

export class Package {
  #plugins;

  constructor(plugins) {
    this.#plugins = new Map(plugins.map((plugin) => [plugin.manifest.id, plugin]));
  }

  /** Calls that the process runs at once. */
  get concurrency() {
    return this.all()[0].manifest.concurrency;
  }

  all() {
    return [...this.#plugins.values()];
  }

  ofKind(kind) {
    return this.all().filter(({ manifest }) => manifest.definition === kind);
  }

  /** Returns the plugin of a primitive, or the only one whatever its id; `undefined` when the package does not serve it. */
  find(primitive) {
    return this.#plugins.size === 1 ? this.all()[0] : this.#plugins.get(primitive);
  }

  /** Returns the plugin of a primitive of this kind; throws what a gRPC method fails with. */
  require(primitive, kind) {
    const plugin = this.find(primitive);
    if (plugin?.manifest.definition === kind) return plugin;
    throw Object.assign(new Error(`the package does not serve the ${kind} ${primitive}`), { code: STATUS.UNIMPLEMENTED });
  }
}
