const { tool } = require('@asp/plugin');

module.exports = tool(({ n }) => ({ n }));
