import '@absent/library/part';
