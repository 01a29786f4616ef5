export ASP_STATE_DIR=$PWD/database
