// What a plugin may do before the rest of it is loaded.
process.on('uncaughtException', () => {});
setInterval(() => {}, 1000);
