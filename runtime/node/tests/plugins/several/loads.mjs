//! What was imported, in order.
export const loads = [];
