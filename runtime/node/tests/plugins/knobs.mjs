//! Reads the language knobs back from inside the process.
import { tool } from '@asp/plugin';

function attempt(run) {
  try {
    return run();
  } catch (error) {
    return error.name;
  }
}

export default tool(() => ({
  arrayFrozen: Object.isFrozen(Array.prototype),
  patched: attempt(() => { Array.prototype.map = () => 'patched'; return [1].map(() => 2); }),
  proto: Object.hasOwn(Object.prototype, '__proto__'),
  addons: attempt(() => { process.dlopen({ exports: {} }, '/nothing.node'); return 'loaded'; }),
  permission: {
    own: process.permission.has('fs.read', process.env.ASP_PLUGIN_CODE),
    work: process.permission.has('fs.write', process.env.ASP_WORK_DIR),
    code: process.permission.has('fs.write', process.env.ASP_PLUGIN_CODE),
    etc: process.permission.has('fs.read', '/etc'),
    child: process.permission.has('child'),
  },
}));
